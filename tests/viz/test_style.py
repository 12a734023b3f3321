import numpy as np
import pytest

from chmnet.viz.style import COLOURS, CORNERS, _to_oklab, contrast, map_colours, position_colours, rgb

# How people without red, green or blue cones see linear colours (Machado, Oliveira and Fernandes 2009).
BLINDNESS = {
    "protanopia": [[0.152, 1.053, -0.205], [0.115, 0.786, 0.099], [-0.004, -0.048, 1.052]],
    "deuteranopia": [[0.367, 0.861, -0.228], [0.280, 0.673, 0.047], [-0.012, 0.043, 0.969]],
    "tritanopia": [[1.256, -0.077, -0.179], [-0.078, 0.931, 0.148], [0.005, 0.691, 0.304]],
}


def seen(colours: np.ndarray, kind: str) -> np.ndarray:
    """Oklab of colours 0 … 255 as people with a kind of colour blindness see them."""
    linear = np.where(colours / 255 <= 0.04045, colours / 255 / 12.92, ((colours / 255 + 0.055) / 1.055) ** 2.4)
    changed = np.clip(linear @ np.array(BLINDNESS[kind]).T, 0, 1)
    return _to_oklab(np.where(changed <= 0.0031308, 12.92 * changed, 1.055 * changed ** (1 / 2.4) - 0.055))


def smallest_distance(colours: np.ndarray) -> float:
    distances = np.linalg.norm(colours[:, None] - colours, axis=-1)
    return float(distances[~np.eye(len(colours), dtype=bool)].min())


@pytest.mark.parametrize("kind", BLINDNESS)
def test_colours_are_told_apart_by_all(kind: str) -> None:
    first_five = np.array([rgb(name) for name in COLOURS[:5]])
    assert smallest_distance(seen(first_five, kind)) > 0.06
    corners = np.array([rgb(name) for name in CORNERS])
    assert smallest_distance(seen(corners, kind)) > 0.12


def test_equal_steps_of_place_look_alike() -> None:
    line = np.linspace(0, 1, 11)
    for fixed in (0.0, 0.5, 1.0):
        for places in (np.stack([line, line * 0 + fixed], 1), np.stack([line * 0 + fixed, line], 1)):
            steps = np.linalg.norm(np.diff(_to_oklab(position_colours(places) / 255), axis=0), axis=1)
            assert steps.max() < 1.6 * steps.min()


def test_places_outside_take_the_nearest_colour() -> None:
    assert position_colours(np.array([[-3.0, -1.0]])).tolist() == [list(rgb(CORNERS[0]))]
    assert map_colours(np.array([-1.0, 2.0])).tolist() == map_colours(np.array([0.0, 1.0])).tolist()


@pytest.mark.parametrize("name", COLOURS)
def test_letters_on_marks_can_be_read(name: str) -> None:
    def luminance(colour: tuple[int, int, int]) -> float:
        values = np.array(colour) / 255
        linear = np.where(values <= 0.04045, values / 12.92, ((values + 0.055) / 1.055) ** 2.4)
        return float(linear @ [0.2126, 0.7152, 0.0722])

    light, dark = sorted([luminance(rgb(name)), luminance(contrast(name))], reverse=True)
    assert (light + 0.05) / (dark + 0.05) > 3  # what the accessibility guidelines ask of large letters
