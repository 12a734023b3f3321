"""Turned pictures on plain canvases: found with their angle and size; other pictures are none."""

import io

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image, ImageDraw

from chmnet.corners import find_canvas
from chmnet.turning import Size


def noise(size: Size, seed: int = 0) -> Image.Image:
    """A picture without any plain part."""
    height, width = size
    values = np.random.default_rng(seed).integers(0, 256, (height // 8 + 1, width // 8 + 1, 3), dtype=np.uint8)
    return Image.fromarray(values).resize((width, height), Image.Resampling.BICUBIC)


@settings(deadline=None, max_examples=40)
@given(
    height=st.integers(150, 500),
    width=st.integers(150, 500),
    turn=st.floats(8, 82),
    quarters=st.integers(0, 3),
    fill=st.sampled_from([(0, 0, 0), (255, 255, 255), (20, 200, 90)]),
)
def test_the_angle_and_the_size_are_found(
    height: int, width: int, turn: float, quarters: int, fill: tuple[int, int, int]
) -> None:
    degrees = turn + 90 * quarters
    canvas = noise((height, width)).rotate(degrees, Image.Resampling.BICUBIC, expand=True, fillcolor=fill)
    found = find_canvas(canvas, (canvas.height, canvas.width))
    assert found is not None
    assert -90 < found.turn < 0
    assert found.turn == pytest.approx(-turn, abs=1)
    size = (height, width) if quarters % 2 == 0 else (width, height)
    np.testing.assert_allclose(found.size, size, atol=0.03 * max(canvas.size))


def test_sizes_are_in_pixels_of_what_the_image_stands_for() -> None:
    buffer = io.BytesIO()
    noise((300, 400)).rotate(25, Image.Resampling.BICUBIC, expand=True).save(buffer, "JPEG", quality=60)
    canvas = Image.open(buffer).convert("RGB")
    found = find_canvas(canvas, (10 * canvas.height, 10 * canvas.width))
    assert found is not None
    assert found.turn == pytest.approx(-25, abs=1)
    np.testing.assert_allclose(found.size, (3000, 4000), atol=150)


def disc() -> Image.Image:
    image = Image.new("RGB", (200, 200), "white")
    ImageDraw.Draw(image).ellipse((0, 0, 199, 199), "navy")
    return image


def small_diamond() -> Image.Image:
    image = Image.new("RGB", (200, 200), "white")
    ImageDraw.Draw(image).polygon([(100, 60), (140, 100), (100, 140), (60, 100)], "navy")
    return image


def aside() -> Image.Image:
    image = Image.new("RGB", (300, 200), "white")
    image.paste(noise((100, 100)).rotate(30, Image.Resampling.BICUBIC, expand=True, fillcolor="white"), (0, 0))
    return image


@pytest.mark.parametrize(
    "image",
    [
        noise((120, 200)),
        noise((120, 200)).rotate(30),  # its corners are lost
        noise((120, 200)).rotate(90, expand=True),
        Image.new("RGB", (50, 40), "red"),
        Image.new("RGB", (1, 1)),
        Image.new("RGB", (4000, 1)),
        disc(),
        small_diamond(),
        aside(),
    ],
    ids=["whole", "corners lost", "quarter", "plain", "dot", "line", "disc", "diamond", "aside"],
)
def test_what_is_no_turned_picture_on_a_canvas(image: Image.Image) -> None:
    assert find_canvas(image, (image.height, image.width)) is None
