"""Where the thing is: boxes from votes, the search for a small thing, and what is matched then."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from PIL import Image

from chmnet import Matcher, place
from chmnet.errors import InputError
from chmnet.features import Features, Fingerprint
from chmnet.pictures import Picture, View
from chmnet.place import agreement, mass_box, template_box, view_part, vote_masses
from tests.conftest import REPOSITORY

EXAMPLES = REPOSITORY / "examples"


@pytest.fixture(scope="module")
def matcher() -> Matcher:
    return Matcher("chmnet-lite", device="cpu", poses="upright")


def paste_small(picture: str, background: str, share: float, left: float, top: float) -> tuple[Image.Image, View]:
    """An example picture, much smaller, on another; and what it is when nothing is around it."""
    canvas = Image.open(EXAMPLES / background).convert("RGB").resize((480, 360))
    small = Image.open(EXAMPLES / picture).convert("RGB").resize((round(480 * share), round(360 * share)))
    x, y = round(left * 480), round(top * 360)
    canvas.paste(small, (x, y))
    return canvas, View(Picture(canvas), area=(x, y, x + small.width, y + small.height))


def test_agreement_counts_things_only() -> None:
    votes = torch.zeros(1, 1, 1, 2, 1, 2)
    votes[..., 0, :, 0] = 0.5  # the left halves vote for each other
    left = torch.tensor([[[1.0, 0.0]]])
    assert agreement(votes, left, left) == pytest.approx(0.5)
    assert agreement(votes, None, None) == pytest.approx(0.25)
    assert agreement(votes, 1 - left, 1 - left) == 0


def test_masses_are_those_of_the_thing_in_both() -> None:
    votes = torch.ones(1, 1, 1, 2, 1, 2)
    source, target = torch.tensor([[[1.0, 0.5]]]), torch.tensor([[[0.2, 0.8]]])
    masses = vote_masses(votes, source, target)
    torch.testing.assert_close(masses[0], torch.tensor([[0.8, 0.4]]))
    torch.testing.assert_close(masses[1], torch.tensor([[0.2, 0.8]]))


def test_a_box_of_no_votes_is_in_the_picture() -> None:
    assert all(0 <= side <= 1 for side in mass_box(torch.zeros(3, 4), 0.05))


def test_templates_are_found_where_votes_are_aligned() -> None:
    votes = torch.zeros(1, 1, 2, 2, 8, 10)
    for row in range(2):
        for column in range(2):
            votes[0, 0, row, column, 4 + row, 6 + column] = 1
    votes[0, 0, 0, 0, 1, 1] = 1  # one alone counts less
    left, top, right, bottom = template_box(votes, None)
    assert abs(left - 0.6) <= 0.1  # positions may be off by one
    assert abs(top - 0.5) <= 0.125
    assert (right - left, bottom - top) == (pytest.approx(0.2), pytest.approx(0.25))


@pytest.mark.parametrize("turn", [0, 90])
@pytest.mark.parametrize("mirrored", [False, True])
def test_a_part_of_a_view_is_what_lies_there(turn: int, mirrored: bool) -> None:
    pixels = np.arange(40 * 80 * 3, dtype=np.uint32).astype(np.uint8).reshape(40, 80, 3)
    view = View(Picture(pixels), mirrored=mirrored, turn=turn)
    part = view_part(view, (0.25, 0.0, 0.5, 0.5))
    height, width = view.size
    expected = view.image().crop((width // 4, 0, width // 2, height // 2))
    assert np.array_equal(np.array(part.image()), np.array(expected))


def test_a_part_outside_is_still_a_pixel() -> None:
    view = view_part(View.of(np.zeros((10, 20), dtype=np.uint8)), (1.2, -0.5, 1.5, -0.2))
    assert view.size == (1, 1)


def test_an_unknown_place_is_refused(matcher: Matcher) -> None:
    with pytest.raises(InputError, match="whole or found"):
        Matcher("nearest-neighbour", place="somewhere")
    with pytest.raises(InputError, match="whole or found"):
        matcher.match(EXAMPLES / "donkey.png", EXAMPLES / "zebra.png", place="somewhere")


@pytest.mark.parametrize("swapped", [False, True])
def test_a_thing_a_third_as_large_is_found(matcher: Matcher, swapped: bool) -> None:
    canvas, small = paste_small("zebra.png", "sedan.png", 1 / 3, 0.1, 0.55)
    large = EXAMPLES / "donkey.png"
    source, target = (canvas, large) if swapped else (large, canvas)
    result = matcher.match(source, target, place="found")
    seen = (result.source if swapped else result.target).area
    assert seen is not None
    assert small.area is not None
    middle = (small.area[0] + small.area[2]) / 2, (small.area[1] + small.area[3]) / 2
    assert seen[0] < middle[0] < seen[2]
    assert seen[1] < middle[1] < seen[3]
    assert (seen[2] - seen[0]) * (seen[3] - seen[1]) < 0.4 * canvas.width * canvas.height


def test_boxes_that_are_given_stay(matcher: Matcher) -> None:
    boxes = ((60, 40, 300, 260), (50, 50, 280, 250))
    source, target = EXAMPLES / "donkey.png", EXAMPLES / "zebra.png"
    told, found = (matcher.match(source, target, boxes=boxes, place=place) for place in ("whole", "found"))
    assert (told.source, told.target) == (found.source, found.target)
    torch.testing.assert_close(told.scores, found.scores, rtol=0, atol=0)


def test_features_alone_are_matched_as_they_are(matcher: Matcher) -> None:
    sides = [matcher.extract(EXAMPLES / name) for name in ("donkey.png", "zebra.png")]
    blind = [replace(side, view=View(Picture(None, side.view.picture.size))) for side in sides]
    result = matcher.match(blind[0], blind[1], place="found")
    assert (result.source.area, result.target.area) == (None, None)


@pytest.mark.parametrize("gain", [place.BETTER - 0.05, place.BETTER + 0.05])
def test_a_part_must_agree_much_better_than_the_whole(monkeypatch: pytest.MonkeyPatch, gain: float) -> None:
    whole = View.of(np.zeros((40, 40), dtype=np.uint8))
    part = replace(whole, area=(0, 0, 20, 20))
    monkeypatch.setattr(place, "_best_window", lambda first, second, *_: (0.4 * gain, part))

    def look(view: View, branch: str, share: float) -> Features:
        return Features((torch.ones(1, 1, 2, 2),), (2, 2), view, Fingerprint(""), branch)

    side = look(whole, "source", 1.0)
    found = place._search(side, side, look, lambda *_: torch.full((1, 1, 2, 2, 2, 2), 0.4), enough=0.1)
    assert (found is not None) == (gain > place.BETTER)
    if found is not None:
        assert part in (found[0].view, found[1].view)
