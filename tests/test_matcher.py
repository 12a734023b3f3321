"""Pictures of every kind in, results out: the same numbers, each picture once, the maps that are known."""

import errno
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image, ImageOps

import chmnet
from chmnet.config import BackboneConfig, TransferConfig
from chmnet.errors import InputError
from chmnet.matcher import Matcher, MatchResult, check_errors, choose_device
from chmnet.nn.chmnet import CHMNet, Pyramid
from chmnet.pictures import Picture, View, to_picture
from chmnet.weights import load_model
from tests.flat import flat_config

from .conftest import REPOSITORY

EXAMPLES = REPOSITORY / "examples"
SMALL = {"image_size": [64, 64]}


def unseen(size: tuple[int, int]) -> View:
    """A whole picture of which only the size is known."""
    return View(Picture(None, size))


@pytest.fixture(scope="module")
def identity() -> MatchResult:
    """A result in which every grid position matches itself."""
    correlation = torch.eye(36).view(1, 1, 6, 6, 6, 6)
    return MatchResult(
        correlation, unseen((60, 120)), unseen((300, 240)), TransferConfig(temperature=1e-3, sampler="nearest")
    )


def test_points_move_between_pixels_of_both_pictures(identity: MatchResult) -> None:
    found = identity.transfer([[0, 0], [120, 60], [48, 36]])
    np.testing.assert_allclose(found.target, [[0, 0], [240, 300], [96, 180]], atol=1e-3)
    np.testing.assert_allclose(found.confidence, [0.4, 0.4, 1 - 0.6 * np.exp(-2)], atol=1e-3)  # border, inside


def test_one_point_and_none(identity: MatchResult) -> None:
    assert identity.transfer([10, 20]).target.shape == (1, 2)
    assert identity.transfer([]).target.shape == (0, 2)


def test_points_are_copied_whatever_they_are(identity: MatchResult) -> None:
    points = np.array([[10.0, 20.0]])
    found = identity.transfer(points)
    points[0] = 99
    np.testing.assert_array_equal(found.source, [[10, 20]])
    points.setflags(write=False)
    assert identity.transfer(points).source.tolist() == [[99, 99]]
    tensor = torch.ones(1, 2, dtype=torch.bfloat16, requires_grad=True)
    assert identity.transfer(tensor).source.tolist() == [[1, 1]]


def test_points_outside_stay_finite(identity: MatchResult) -> None:
    assert np.isfinite(identity.transfer([[-500, 1e9]]).target).all()


@pytest.mark.parametrize(
    ("points", "sentence"),
    [
        ([[1, 2, 3]], "rows"),
        ("nonsense", "rows of two numbers"),
        ([[np.nan, 1]], "finite"),
        ([[np.inf, 1]], "finite"),
    ],
)
def test_bad_points(identity: MatchResult, points: object, sentence: str) -> None:
    with pytest.raises(InputError, match=sentence):
        identity.transfer(points)


def test_best_matches_come_first() -> None:
    generator = torch.Generator().manual_seed(0)
    correlation = torch.rand(1, 1, 5, 5, 5, 5, generator=generator)
    result = MatchResult(correlation, unseen((50, 50)), unseen((50, 50)), TransferConfig(temperature=0.01))
    found = result.matches(top=7)
    assert found.source.shape == found.target.shape == (7, 2)
    assert (np.diff(found.confidence) <= 0).all()
    with pytest.raises(InputError, match="at least 1"):
        result.matches(top=0)


def test_a_picture_matches_itself() -> None:
    picture = EXAMPLES / "european-bear.png"
    result = chmnet.match(picture, picture, model="nearest-neighbour")
    found = result.matches(top=100)
    assert np.abs(found.source - found.target).mean() < 0.02 * 346


def test_paths_and_images_are_the_same() -> None:
    paths = [EXAMPLES / "donkey.png", EXAMPLES / "zebra.png"]
    matcher = Matcher("nearest-neighbour")
    from_paths = matcher.match(*paths)
    from_images = matcher.match(*(Image.open(path) for path in paths))
    torch.testing.assert_close(from_paths.scores, from_images.scores)
    assert from_paths.source_size == (161, 200)


def test_default_model_is_deterministic() -> None:
    paths = [EXAMPLES / "donkey.png", EXAMPLES / "zebra.png"]
    first, second = (Matcher().match(*paths).scores for _ in range(2))
    torch.testing.assert_close(first, second, rtol=0, atol=0)


# ---------------------------------------------------------------- one and many


@pytest.fixture(scope="module")
def small() -> Matcher:
    return Matcher(load_model("nearest-neighbour", changes=SMALL), device="cpu", poses="upright")


def pictures(count: int) -> Iterator[Image.Image]:
    for number in range(count):
        pixels = np.random.default_rng(number).integers(0, 255, (6, 8, 3), dtype=np.uint8)
        yield Image.fromarray(pixels).resize((50 + number % 7, 40), Image.Resampling.BICUBIC)


def count_pictures(network: CHMNet, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """A list that gets one entry for each picture that goes through the backbone."""
    seen: list[str] = []
    original = CHMNet.features

    def counted(self: CHMNet, images: torch.Tensor, branch: str = "source") -> torch.Tensor:
        seen.extend([branch] * len(images))
        return original(self, images, branch)

    monkeypatch.setattr(CHMNet, "features", counted)
    return seen


def test_one_to_many_gives_the_numbers_of_single_calls_and_each_picture_goes_through_once(
    small: Matcher, monkeypatch: pytest.MonkeyPatch
) -> None:
    source, *targets = pictures(6)
    single = [small.match(source, target) for target in targets]
    seen = count_pictures(small.model, monkeypatch)
    many = list(small.one_to_many(source, iter(targets)))
    assert len(seen) == 6
    for one, other in zip(single, many, strict=True):
        assert one == other
        assert other.target_picture is not None


def test_many_targets_take_bounded_memory(small: Matcher, monkeypatch: pytest.MonkeyPatch) -> None:
    """Targets are taken one by one, and nothing of them is kept but their results."""
    seen = count_pictures(small.model, monkeypatch)
    alive = 0
    source, *_ = pictures(1)

    def targets() -> Iterator[Image.Image]:
        nonlocal alive
        for picture in pictures(40):
            alive += 1
            yield picture

    for number, result in enumerate(small.one_to_many(source, targets()), start=1):
        assert alive == number
        assert result.scores.shape == (1, 1, 8, 8, 8, 8)
    assert len(seen) == 41
    assert small.cache is None


def test_match_many_computes_repeated_pictures_once(
    small: Matcher, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    paths = [tmp_path / f"{number}.png" for number in range(3)]
    for path, picture in zip(paths, pictures(3), strict=True):
        picture.save(path)
    pairs = [(a, b) for a in paths for b in paths]
    single = [small.match(*pair) for pair in pairs]
    seen = count_pictures(small.model, monkeypatch)
    assert list(small.match_many(pairs)) == single
    assert len(seen) == 3


def test_one_unreadable_picture_does_not_end_the_others(small: Matcher, tmp_path: Path) -> None:
    first, second = pictures(2)
    missing = tmp_path / "none.png"
    pairs = [(first, second), (first, missing), (missing, second), (second, first)]
    found = list(small.match_many(iter(pairs), errors="return"))
    assert [type(one) for one in found] == [MatchResult, InputError, InputError, MatchResult]
    assert found[0] == small.match(first, second)
    assert found[1].reason == "no-such-file"
    found = list(small.one_to_many(first, [second, missing, second], errors="return"))
    assert [type(one) for one in found] == [MatchResult, InputError, MatchResult]
    for many in (
        small.match_many(pairs),
        small.one_to_many(first, [missing]),
        small.one_to_many(missing, [first]),
    ):
        with pytest.raises(InputError, match=r"none\.png"):
            list(many)
    with pytest.raises(InputError, match="raise or return"):
        check_errors("ignore")


def test_views_are_matched_inside_and_answered_in_the_whole_picture(small: Matcher) -> None:
    picture = Image.effect_noise((120, 90), 60).convert("RGB")
    whole = Picture(picture)
    crop = View(whole, (30, 20, 94, 84))
    found = small.match(crop, picture.crop((30, 20, 94, 84))).matches(5)
    np.testing.assert_allclose(found.source - [30, 20], found.target, atol=8)
    mirrored = small.match(View(whole, crop.area, mirrored=True), ImageOps.mirror(picture.crop((30, 20, 94, 84))))
    np.testing.assert_allclose(94 - mirrored.matches(5).source[:, 0], mirrored.matches(5).target[:, 0], atol=8)


def test_a_full_disk_is_one_sentence(small: Matcher, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(**options: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("chmnet.features.tempfile.TemporaryFile", refuse)
    monkeypatch.setattr("chmnet.matcher.CACHE_BYTES", 1)
    first, second = pictures(2)
    with pytest.raises(InputError, match=r"cannot keep features in the temporary folder .*No space left"):
        list(small.match_many([(first, second)]))


def test_separate_backbones_see_source_and_target(monkeypatch: pytest.MonkeyPatch) -> None:
    config = load_model("nearest-neighbour", changes=SMALL).config
    torch.manual_seed(1)
    network = CHMNet(config.replace(backbone={"branches": "separate"})).eval()
    matcher = Matcher(network, device="cpu", poses="upright")
    first, second = pictures(2)
    expected = matcher.match(first, second)
    assert matcher.match(second, first) != expected
    seen = count_pictures(network, monkeypatch)
    assert next(matcher.one_to_many(first, [second])) == expected
    forth, _ = matcher.match_many([(first, second), (second, first)])
    assert forth == expected
    assert sorted(seen) == ["source"] * 3 + ["target"] * 3


def test_limited_memory_gives_the_same_numbers(small: Matcher) -> None:
    first, second = pictures(2)
    limited = Matcher(small.model, device="cpu", memory_mb=60)
    torch.testing.assert_close(limited.match(first, second).scores, small.match(first, second).scores)
    with pytest.raises(InputError, match="more than the limit"):
        Matcher(small.model, device="cpu", memory_mb=1).match(first, second)


def test_keypoints_go_with_the_result(small: Matcher) -> None:
    first, second = pictures(2)
    result = chmnet.match(first, second, [[10, 20]], model=small.model)
    assert result.keypoints is not None
    np.testing.assert_array_equal(result.keypoints.target, result.transfer([10, 20]).target)
    assert chmnet.match(first, second, model=small.model).keypoints is None


# ---------------------------------------------------------------- scales and devices


def test_winning_scales_are_those_of_the_best_votes() -> None:
    config = flat_config(
        backbone=BackboneConfig("efficientnet-lite0"),
        image_size=(64, 64),
        scales=(0.7, 1.0, 1.4),
        channel_reduction=8,
    )
    torch.manual_seed(0)
    network = CHMNet(config).eval()
    torch.nn.init.normal_(network.head.first.weight)  # else the middle, where most votes meet, wins everywhere
    matcher = Matcher(network, device="cpu", poses="upright")
    first, second = pictures(2)
    plain, result = matcher.match(first, second), matcher.match(first, second, scales=True)
    torch.testing.assert_close(plain.scores, result.scores)
    assert plain.scale_pairs is None
    assert result.scale_pairs is not None
    assert result.scale_pairs.shape == (1, 4, 4, 4, 4)
    head, sides = matcher.model.head, [matcher.extract(picture) for picture in (first, second)]
    with torch.inference_mode():
        votes = head.first(head.correlate(*(Pyramid(list(side.levels), side.grid) for side in sides)))[0, 0]
    best = votes.flatten(0, 1).max(0).values
    winners = result.scale_pairs[0]
    for source in range(3):
        for target in range(3):
            won = winners == 3 * source + target
            torch.testing.assert_close(votes[source, target][won], best[won], rtol=0, atol=0)
    assert len(winners.unique()) > 2  # and not always the same
    scales = result.winning_scales(result.matches(20))
    assert scales.shape == (20, 2)
    assert set(scales.flatten()) <= {0.7, 1.0, 1.4}


def test_models_of_one_scale_say_so(small: Matcher) -> None:
    first, second = pictures(2)
    result = small.match(first, second, scales=True)
    with pytest.raises(InputError, match="one scale"):
        result.winning_scales(result.matches(3))


def test_devices(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.setattr(torch.backends.mps, "is_available", lambda: False)
    assert choose_device("auto") == choose_device(torch.device("cpu")) == torch.device("cpu")
    for absent in ("cuda", "cuda:3", "mps", "meta"):
        with pytest.raises(InputError, match="finds no device"):
            choose_device(absent)
    with pytest.raises(InputError, match="there is no device 'quantum'"):
        choose_device("quantum")
    monkeypatch.setattr(torch.backends.mps, "is_available", lambda: True)
    assert choose_device("auto") == torch.device("mps")
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    assert choose_device("auto") == torch.device("cuda")
    with pytest.raises(InputError, match="finds no device"):
        choose_device("cuda:1")


# ---------------------------------------------------------------- maps that are known

Known = tuple[Image.Image, Callable[[np.ndarray], np.ndarray]]


def known_maps(picture: Image.Image) -> Iterator[tuple[str, float, Known]]:
    """Copies of a picture, the share of its longer side that matches may miss by, and where points went."""
    width, height = picture.size
    yield "itself", 0.02, (picture, lambda points: points)
    pixels = np.asarray(picture)
    for x, y in ((0.1, 0.0), (0.0, 0.1), (-0.1, -0.1)):
        right, down = round(x * width), round(y * height)
        rows, columns = (np.arange(n) - by for n, by in ((height, down), (width, right)))
        moved = pixels[rows.clip(0, height - 1)][:, columns.clip(0, width - 1)]  # the border goes on
        yield f"shifted by {x}, {y}", 0.04, (Image.fromarray(moved), lambda p, by=(right, down): p + by)
    centre = np.array([width / 2, height / 2])
    inner = (0.1 * width, 0.1 * height, 0.9 * width, 0.9 * height)
    enlarged = picture.resize(picture.size, Image.Resampling.BILINEAR, box=inner)
    yield "enlarged", 0.04, (enlarged, lambda points: (points - centre) * 1.25 + centre)
    smaller = picture.resize((round(width / 1.25), round(height / 1.25)), Image.Resampling.BILINEAR)
    shrunk = Image.new("RGB", picture.size, "white")
    corner = (width - smaller.width) // 2, (height - smaller.height) // 2
    shrunk.paste(smaller, corner)
    yield "shrunk", 0.04, (shrunk, lambda points: points / 1.25 + corner)
    resized = picture.resize((round(width * 1.25), round(height * 1.25)), Image.Resampling.BILINEAR)
    yield "resized", 0.04, (resized, lambda points: points * 1.25)


def check_known_maps(matcher: Matcher, picture: Image.Image) -> None:
    maps = list(known_maps(picture))
    results = matcher.one_to_many(picture, (copy for _, _, (copy, _) in maps))
    for (name, limit, (_, moved)), result in zip(maps, results, strict=True):
        found = result.matches(top=300)
        miss = np.linalg.norm(found.target - moved(found.source), axis=1).mean() / max(picture.size)
        assert miss < limit, (name, picture.size, miss)


SIZES = [(240, 240), (500, 333), (333, 500)]


@pytest.mark.parametrize("size", SIZES, ids=str)
def test_copies_of_an_example_are_matched_as_they_were_made(size: tuple[int, int]) -> None:
    picture = to_picture(EXAMPLES / "european-bear.png").resize(size, Image.Resampling.BICUBIC)
    check_known_maps(Matcher(device="cpu"), picture)


@pytest.mark.slow
def test_copies_of_photographs_are_matched_as_they_were_made(shared: Path) -> None:
    photographs = [
        *sorted((shared / "datasets/PF-PASCAL/JPEGImages").glob("*.jpg"))[::250],
        *sorted((shared / "datasets/PF-WILLOW").rglob("*.png"))[::20],
        *sorted(EXAMPLES.glob("*.png")),
    ]
    assert len(photographs) > 8
    matcher = Matcher(device="cpu")
    for path in photographs:
        for size in SIZES:
            check_known_maps(matcher, to_picture(path).resize(size, Image.Resampling.BICUBIC))


def test_each_animal_of_a_herd_is_matched_by_itself(herd: Path) -> None:
    """The donkey finds the donkey on the left, then the gnu; every point lies on one of them."""
    matcher = Matcher()
    groups = matcher.match(EXAMPLES / "donkey.png", herd).matches(100, instances=4)
    assert len(groups) == 2
    assert (groups[0].target[:, 0] < 245).all()
    assert (groups[1].target[:, 0] > 235).all()
    assert (np.diff([group.confidence.mean() for group in groups]) < 0).all()
    alone = matcher.match(EXAMPLES / "donkey.png", EXAMPLES / "zebra.png")
    assert len(alone.matches(10, instances=4)) == 1


def test_no_poses_are_not_the_default_poses() -> None:
    matcher = Matcher("nearest-neighbour")
    with pytest.raises(InputError, match="poses must be upright, mirror or any, got ''"):
        matcher.match(EXAMPLES / "donkey.png", EXAMPLES / "zebra.png", poses="")


def test_a_view_chooses_the_pose() -> None:
    view = chmnet.View(Picture(EXAMPLES / "zebra.png"), mirrored=True)
    result = Matcher("nearest-neighbour").match(EXAMPLES / "donkey.png", view)
    assert (result.target.mirrored, result.pose_probability) == (True, None)
