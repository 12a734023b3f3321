"""Which way the target faces: candidate views, and the choice among them."""

import math
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image, ImageOps

from chmnet import Matcher
from chmnet.errors import InputError
from chmnet.features import FeatureCache, Features, Fingerprint
from chmnet.pictures import Picture, View
from chmnet.poses import find_pose, likeness_gain, mirror_probability, mirrored
from chmnet.turns import turned
from tests.conftest import REPOSITORY

EXAMPLES = REPOSITORY / "examples"
NUMBERS = (-2.0, 8.0, 2.0, 10.0)


@pytest.fixture
def picture() -> Picture:
    return Picture(np.arange(20 * 30 * 3, dtype=np.uint8).reshape(20, 30, 3))


def features(view: View, across: float | None = None, cosine: float = 1.0) -> Features:
    """Of one position, whose feature has such a cosine with that of others."""
    facing = None if across is None else (across, 0.0)
    level = torch.tensor([cosine, (1 - cosine**2) ** 0.5]).view(1, 2, 1, 1)
    return Features((level,), (1, 1), view, Fingerprint("x"), facing=facing)


class Eyes:
    """A network that sees what it is told, and notes what it was shown."""

    def __init__(
        self,
        strengths: dict[tuple[bool, float], float],
        facing: dict[bool, float] | None = None,
        mirror_cosine: float = 1.0,
    ) -> None:
        self.strengths, self.facing, self.mirror_cosine = strengths, facing, mirror_cosine
        self.seen: list[tuple[bool, float, float]] = []

    def looks(self, views: Sequence[View], branch: str, share: float) -> list[Features]:
        self.seen += [(view.mirrored, view.turn, share) for view in views]
        across = self.facing or {}
        cosines = {False: 1.0, True: self.mirror_cosine}
        return [features(view, across.get(view.mirrored), cosines[view.mirrored]) for view in views]

    def vote(self, source: Features, target: Features) -> torch.Tensor:
        strength = self.strengths.get((target.view.mirrored, target.view.turn), 0.1)
        return torch.full((1, 1, 1, 1, 1, 1), strength)


@pytest.mark.parametrize("turn", [90, 30, 200.5])
def test_mirroring_a_turned_view_shows_its_mirror_image(turn: float) -> None:
    smooth = Image.effect_noise((9, 12), 60).convert("RGB").resize((90, 120), Image.Resampling.BICUBIC)
    view = turned(View.of(smooth), turn)
    assert (view.window is None) == (turn == 90)
    seen = [np.asarray(image).astype(int) for image in (mirrored(view).image(), ImageOps.mirror(view.image()))]
    assert np.abs(seen[0] - seen[1]).max() <= (0 if turn == 90 else 1)
    assert mirrored(mirrored(view)) == view


@pytest.mark.parametrize("view", [{"mirrored": True}, {"turn": 90}])
def test_a_view_that_somebody_chose_stays(picture: Picture, view: dict[str, object]) -> None:
    eyes = Eyes({})
    target = features(View(picture, **view))  # type: ignore[arg-type]
    assert find_pose(target, target, "any", eyes.looks, eyes.vote, NUMBERS) == (target, None)


def test_a_target_that_faces_the_other_way_is_mirrored(picture: Picture) -> None:
    eyes = Eyes({(False, 0): 0.5, (True, 0): 0.5}, {False: -0.9, True: 0.9})
    source, target = features(View.of(picture), 0.9), features(View.of(picture), -0.9)
    found, chances = find_pose(source, target, "mirror", eyes.looks, eyes.vote, NUMBERS)
    assert found.view.mirrored
    assert chances is not None
    assert chances[0] > 0.9


def test_a_mirror_image_that_looks_less_alike_is_not_taken(picture: Picture) -> None:
    eyes = Eyes({}, {False: -0.9, True: 0.9}, mirror_cosine=0.5)
    source, target = features(View.of(picture), 0.9), features(View.of(picture), -0.9)
    found, chances = find_pose(source, target, "mirror", eyes.looks, eyes.vote, NUMBERS)
    assert not found.view.mirrored
    assert chances is not None
    assert chances[0] > 0.9


def test_what_lies_beside_the_thing_does_not_count(picture: Picture) -> None:
    view = View.of(picture)
    rows = {
        name: torch.tensor(row).view(1, 2, 1, 2)
        for name, row in {
            "source": [[1.0, 0.0], [0.0, 1.0]],
            "target": [[1.0, 1.0], [0.0, 0.0]],
            "mirror": [[0.0, 0.0], [1.0, 1.0]],
        }.items()
    }
    for thing, expected in (([[1.0, 0.0]], -1), ([[0.0, 1.0]], 1)):
        sides = [
            Features((level,), (1, 2), view, Fingerprint("x"), foreground=torch.tensor([thing]))
            for level in rows.values()
        ]
        assert likeness_gain(*sides) == pytest.approx(expected)


def test_a_thing_that_faces_nowhere_stays_as_it_is(picture: Picture) -> None:
    eyes = Eyes({(False, 0): 0.5, (True, 0): 0.52}, {False: 0.02, True: -0.02})
    target = features(View.of(picture), 0.02)
    found, chances = find_pose(target, target, "mirror", eyes.looks, eyes.vote, NUMBERS)
    assert not found.view.mirrored
    assert chances is not None
    assert chances[0] > 0.5


def test_any_tries_turned_targets_and_their_mirror_images(picture: Picture) -> None:
    eyes = Eyes({(False, 0): 0.2, (False, 120): 0.6}, mirror_cosine=0.5)
    target = features(View.of(picture))
    numbers = (1.0, -4.0, 7.0, 5.0)
    found, chances = find_pose(target, target, "any", eyes.looks, eyes.vote, NUMBERS, numbers)
    assert (found.view.mirrored, found.view.turn) == (False, 120)
    assert chances is not None
    assert chances[0] > 0.8
    assert eyes.seen[-1] == (True, 240, 1.0)


def test_both_mirror_poses_share_the_probability_of_the_turn(picture: Picture) -> None:
    eyes = Eyes({(False, 0): 0.2, (False, 120): 0.6})
    target = features(View.of(picture))
    turn, mirror = 0.55, 0.6
    numbers = [(math.log(p / (1 - p)), 0.0, 0.0, 0.0) for p in (mirror, 1 - mirror)]
    for mirror_numbers, is_mirrored in zip(numbers, (True, False), strict=True):
        turn_numbers = (1.0, math.log(turn / (1 - turn)), 0.0, 0.0)
        found, chances = find_pose(target, target, "any", eyes.looks, eyes.vote, mirror_numbers, turn_numbers)
        assert (found.view.mirrored, found.view.turn) == (is_mirrored, 240 if is_mirrored else 120)
        assert chances == pytest.approx((0.33, 0.22))


def test_probabilities_are_finite_for_any_evidence() -> None:
    assert 0 <= mirror_probability((1.0, 0.0, 1e30), NUMBERS) <= 1
    before = (*NUMBERS, 60.0)  # files of before have a fifth number
    assert mirror_probability((0.1, 0.0, 0.2), before) == mirror_probability((0.1, 0.0, 0.2), NUMBERS)


def test_unknown_poses_are_refused() -> None:
    with pytest.raises(InputError, match="upright, mirror or any"):
        Matcher("nearest-neighbour", poses="sideways")
    matcher = Matcher("nearest-neighbour")
    for wrong in ({"poses": "sideways"}, {"poses": ""}, {"place": ""}):
        with pytest.raises(InputError, match="must be"):
            matcher.match(EXAMPLES / "donkey.png", EXAMPLES / "zebra.png", **wrong)


def test_a_matcher_keeps_features_of_each_pose() -> None:
    with FeatureCache[Features]() as cache:
        matcher = Matcher("nearest-neighbour", cache=cache)
        for _ in range(2):
            matcher.match(EXAMPLES / "donkey.png", EXAMPLES / "zebra.png")
        assert cache.computed == 3  # source, target, mirrored target
        matcher.match(EXAMPLES / "donkey.png", EXAMPLES / "zebra.png", poses="upright")
        assert cache.computed == 3


def test_boxes_are_all_that_is_seen(tmp_path: Path) -> None:
    matcher = Matcher("nearest-neighbour", poses="upright")
    picture = Image.open(EXAMPLES / "donkey.png").convert("RGB")
    width, height = picture.size
    whole = Image.new("RGB", (3 * width, 3 * height), "white")
    whole.paste(picture, (width, height))
    result = matcher.match(picture, whole, boxes=(None, (width, height, 2 * width, 2 * height)))
    point = np.array([[width / 2, height / 2]])
    assert np.abs(result.locate(point) - point - [width, height]).max() < 0.1 * width
    with pytest.raises(InputError, match="outside"):
        matcher.match(picture, whole, boxes=(None, (-50, -50, -10, -10)))


@pytest.mark.parametrize(
    ("source", "target", "is_mirrored"),
    [
        ("donkey.png", "pairs/horse.png", True),  # it looks the other way
        ("donkey.png", "zebra.png", False),
    ],
)
def test_the_default_model_sees_which_way_examples_face(source: str, target: str, is_mirrored: bool) -> None:
    result = Matcher(device="cpu").match(EXAMPLES / source, EXAMPLES / target)
    assert result.target.mirrored is is_mirrored
    flipped = ImageOps.mirror(Image.open(EXAMPLES / target).convert("RGB"))
    assert Matcher(device="cpu").match(EXAMPLES / source, flipped).target.mirrored is not is_mirrored


def test_turns_that_are_computed_together_are_kept_one_by_one() -> None:
    """With a cache and without, the same numbers; asked again, nothing is computed."""
    with FeatureCache[Features]() as cache:
        matcher = Matcher("chmnet-lite", poses="any", image_size=(96, 96), cache=cache)
        zebra = Image.open(EXAMPLES / "zebra.png").convert("RGB").rotate(90, expand=True)
        first = matcher.match(EXAMPLES / "donkey.png", zebra)
        expected = Matcher(matcher.model, poses="any", image_size=(96, 96)).match(EXAMPLES / "donkey.png", zebra)
        assert first.target == expected.target
        torch.testing.assert_close(first.scores, expected.scores)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(matcher, "_compute", lambda *_: pytest.fail("it is in the cache"))
            assert matcher.match(EXAMPLES / "donkey.png", zebra).target == first.target
