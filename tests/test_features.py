"""Features are values; one cache keeps them, within its memory, for whoever owns them."""

import copy
import errno
import gc
import os
import pickle
import tempfile
import threading
import weakref
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from PIL import Image
from safetensors.torch import save_file

from chmnet import pictures
from chmnet.errors import ConfigError, InputError
from chmnet.features import FeatureCache, Features, Fingerprint
from chmnet.files import read_tensors
from chmnet.matcher import Matcher
from chmnet.nn import CHMNet
from chmnet.pictures import View
from chmnet.weights import load_model

SMALL = {"image_size": (64, 64)}


@pytest.fixture(scope="module")
def matcher() -> Matcher:
    return Matcher(load_model("nearest-neighbour", changes=SMALL), device="cpu")


@pytest.fixture
def paths(tmp_path: Path) -> list[Path]:
    found = [tmp_path / f"{number}.png" for number in range(4)]
    for number, path in enumerate(found):
        Image.effect_noise((50 + number, 40), 60).convert("RGB").save(path)
    return found


def check_same(one: Features, other: Features) -> None:
    assert one.grid == other.grid
    for mine, theirs in zip(one.levels, other.levels, strict=True):
        torch.testing.assert_close(mine, theirs, rtol=0, atol=0)


def test_a_small_memory_overflows_to_disk_and_computes_nothing_twice(matcher: Matcher, paths: list[Path]) -> None:
    expected = [matcher.extract(path) for path in paths]
    with FeatureCache[Features](memory_bytes=expected[0].nbytes) as small, FeatureCache[Features]() as large:
        for cache in (small, large):
            cached = Matcher(matcher.model, device="cpu", cache=cache)
            for _ in range(2):
                for path, features in zip(paths, expected, strict=True):
                    check_same(cached.extract(path), features)
            assert cache.computed == len(paths)
        assert small.nbytes <= expected[0].nbytes < large.nbytes


def test_without_disk_what_does_not_fit_is_computed_again(matcher: Matcher, paths: list[Path]) -> None:
    size = matcher.extract(paths[0]).nbytes
    cache = FeatureCache[Features](memory_bytes=size, disk=False)
    cached = Matcher(matcher.model, device="cpu", cache=cache)
    for path in (paths[0], paths[1], paths[0]):
        check_same(cached.extract(path), matcher.extract(path))
    assert cache.computed == 3


def test_an_owner_is_dropped_at_once(matcher: Matcher, paths: list[Path]) -> None:
    cache = FeatureCache[Features](memory_bytes=0)
    cached = Matcher(matcher.model, device="cpu", cache=cache)
    for owner in ("anna", "bert", "anna"):
        cached.extract(paths[0], owner=owner)
    assert cache.computed == 2
    cache.drop("anna")
    cached.extract(paths[0], owner="bert")
    assert cache.computed == 2
    cached.extract(paths[0], owner="anna")
    assert cache.computed == 3
    assert cache.nbytes == 0


def test_a_changed_file_is_another_picture(matcher: Matcher, paths: list[Path]) -> None:
    cached = Matcher(matcher.model, device="cpu", cache=FeatureCache[Features]())
    first = cached.extract(paths[0])
    Image.new("RGB", (30, 30), "red").save(paths[0])
    os.utime(paths[0], ns=(1, 1))
    assert not torch.equal(cached.extract(paths[0]).levels[0], first.levels[0])


def test_the_cache_keeps_no_pixels(matcher: Matcher, paths: list[Path]) -> None:
    cached = Matcher(matcher.model, device="cpu", cache=FeatureCache[Features]())
    assert cached.extract(paths[0]).view.picture._image is None
    assert matcher.extract(paths[0]).view.picture._image is not None


def test_values_are_kept_in_the_type_that_was_asked_for() -> None:
    cache = FeatureCache[torch.Tensor](memory_bytes=4, dtype=torch.float16)
    for _ in range(2):
        for number in range(3):
            value = cache.get(number, lambda number=number: torch.full((2,), number + 1 / 3))
            assert value.dtype == torch.float16
            torch.testing.assert_close(value, torch.full((2,), number + 1 / 3).half())
    assert cache.computed == 3


def test_threads_share_a_cache(matcher: Matcher, paths: list[Path]) -> None:
    expected = {path: matcher.extract(path) for path in paths}
    cached = Matcher(matcher.model, device="cpu", cache=FeatureCache[Features](memory_bytes=1))
    problems: list[BaseException] = []

    def work() -> None:
        try:
            for path in paths * 3:
                check_same(cached.extract(path), expected[path])
        except BaseException as error:
            problems.append(error)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert problems == []


@pytest.mark.parametrize("copied", [copy.deepcopy, lambda cache: pickle.loads(pickle.dumps(cache))])
def test_copies_begin_empty(copied) -> None:  # type: ignore[no-untyped-def]
    cache = FeatureCache[torch.Tensor](memory_bytes=7, disk=False)
    cache.get("a", lambda: torch.ones(1))
    other = copied(cache)
    assert (other.memory_bytes, other.disk, other.computed, other.find("a")) == (7, False, 0, None)


def test_separate_branches_have_features_of_their_own(paths: list[Path]) -> None:
    config = load_model("nearest-neighbour", changes=SMALL).config
    torch.manual_seed(1)
    network = CHMNet(config.replace(backbone={"branches": "separate"})).eval()
    matcher = Matcher(network, device="cpu", cache=FeatureCache[Features]())
    source, target = matcher.extract(paths[0], "source"), matcher.extract(paths[0], "target")
    assert not torch.equal(source.levels[0], target.levels[0])


# ---------------------------------------------------------------- features as values


def test_features_match_as_their_pictures_do(matcher: Matcher, paths: list[Path]) -> None:
    features = [matcher.extract(path) for path in paths[:2]]
    expected = matcher.match(*paths[:2])
    assert matcher.match(*features) == matcher.match(paths[0], features[1]) == expected
    assert next(matcher.match_many([(features[0], paths[1])])) == expected
    half = matcher.match(*(each.half() for each in features))
    torch.testing.assert_close(half.scores, expected.scores, rtol=0, atol=0.01)
    assert features[0].half().nbytes == features[0].nbytes // 2


@pytest.mark.parametrize("turn", [90, 30, 123.456789012345])
def test_saved_features_are_the_same(turn: float, matcher: Matcher, paths: list[Path], tmp_path: Path) -> None:
    view = View.around(paths[0], (5, 6, 30, 31))
    window = (3, 4, 20, 20) if turn % 90 else None
    features = matcher.extract(View(view.picture, view.area, True, turn, window))
    features.save(tmp_path / "f.safetensors")
    loaded = Features.load(tmp_path / "f.safetensors")
    check_same(features, loaded)
    seen = loaded.view
    assert (seen.area, seen.mirrored, seen.turn, seen.window) == (view.area, True, turn, window)
    again, first = matcher.match(loaded, loaded), matcher.match(features, features)
    torch.testing.assert_close(again.scores, first.scores)
    with pytest.raises(InputError, match="exists"):
        features.save(tmp_path / "f.safetensors")


@pytest.mark.parametrize("content", [b"", b"hello", b"\x02\x00\x00\x00\x00\x00\x00\x00{}"])
def test_files_that_are_no_features(content: bytes, tmp_path: Path) -> None:
    path = tmp_path / "f.safetensors"
    path.write_bytes(content)
    with pytest.raises(InputError, match=r"f\.safetensors"):
        Features.load(path)
    with pytest.raises(InputError, match="no file"):
        Features.load(tmp_path / "none.safetensors")


def test_features_of_another_model_are_refused(matcher: Matcher, paths: list[Path]) -> None:
    other = Matcher(load_model("hough-prior", changes=SMALL), device="cpu")
    with pytest.raises(InputError, match="another model"):
        other.match(matcher.extract(paths[0]), paths[1])
    same = Matcher(load_model("nearest-neighbour", changes=SMALL), device="cpu")
    assert same.match(matcher.extract(paths[0]), paths[1]) == matcher.match(*paths[:2])


def test_models_of_the_same_weights_and_other_scales_share_no_features(paths: list[Path]) -> None:
    networks = [
        load_model("hough-prior", changes={**SMALL, **more})
        for more in ({}, {"correlation": {"scales": [0.5, 1.0]}})
    ]
    with FeatureCache[Features]() as cache:
        for network in networks:
            matcher = Matcher(network, device="cpu", cache=cache)
            assert len(matcher.extract(paths[0]).levels) == len(network.head.scales)
    assert cache.computed == 2


def test_a_fingerprint_is_computed_only_when_compared(matcher: Matcher, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(module: object) -> str:
        raise AssertionError("hashed")

    monkeypatch.setattr("chmnet.features.hash_weights", refuse)
    network = load_model("nearest-neighbour", changes=SMALL)
    fresh = Matcher(network, device="cpu")
    picture = Image.effect_noise((40, 40), 60)
    fresh.match(picture, picture)
    with pytest.raises(AssertionError, match="hashed"):
        assert fresh.fingerprint == Fingerprint("0")


def test_full_disk_is_one_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(**_: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(tempfile, "TemporaryFile", refuse)
    with FeatureCache[torch.Tensor](0) as cache, pytest.raises(InputError, match="No space left on device"):
        cache.get("a", lambda: torch.ones(1))


def test_overflow_leaves_no_file_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    with FeatureCache[torch.Tensor](0) as cache:
        cache.get("a", lambda: torch.ones(1))
        assert not any(path.is_file() and path.stat().st_size for path in tmp_path.iterdir())
    assert list(tmp_path.iterdir()) == []


# ---------------------------------------------------------------- what must not be kept, or taken


def test_a_cache_keeps_neither_pictures_nor_models(matcher: Matcher, paths: list[Path]) -> None:
    network = load_model("nearest-neighbour", changes=SMALL)
    cached = Matcher(network, device="cpu", cache=FeatureCache[Features]())
    picture = Image.effect_noise((40, 40), 60).convert("RGB")
    model, image = weakref.ref(cached.model), weakref.ref(picture)
    result = cached.match(picture, paths[0])
    assert result.source_picture is not None
    cached.match(picture, paths[0]).warp()
    cache = cached.cache
    assert cache is not None
    assert cache.computed == 3  # with the mirrored target
    del cached, result, picture
    gc.collect()
    assert image() is None
    assert model() is None
    assert all(features.view.picture._image is None for features in cache._kept.values())


def test_features_of_the_other_backbone_are_refused(paths: list[Path]) -> None:
    config = load_model("nearest-neighbour", changes=SMALL).config
    torch.manual_seed(1)
    matcher = Matcher(CHMNet(config.replace(backbone={"branches": "separate"})).eval(), device="cpu")
    source, target = matcher.extract(paths[0]), matcher.extract(paths[1], "target")
    assert matcher.match(source, target) == matcher.match(paths[0], paths[1])
    with pytest.raises(InputError, match="target"):
        matcher.match(source, matcher.extract(paths[1]))


@pytest.mark.parametrize(
    "change",
    [
        {"fingerprint": None},
        {"grid": "[0, 4]"},
        {"grid": '["a", null]'},
        {"view": '{"size": ["x", "y"]}'},
        {"view": '{"size": [-1, 4]}'},
        {"view": '{"size": [40, 50], "area": [0.5, 0, 9, 9]}'},
        {"view": '{"size": [40, 50], "turn": 30, "window": [0, 0, 9]}'},
        {"view": '{"size": [40, 50], "window": [0, 0, 9, 9]}'},
        {"view": '{"size": [40, 50], "turn": NaN}'},
        {"view": '{"size": [40, 50], "turn": -Infinity}'},
        {"view": '{"size": [40, 50], "turn": true}'},
        {"view": '{"size": [40, 50], "turn": "90"}'},
        {"view": '{"size": [40, 50], "turn": [0]}'},
        {"view": '{"size": [40, 50], "mirrored": 1}'},
        {"view": "[]"},
        {"branch": '"both"'},
    ],
    ids=str,
)
def test_damaged_metadata(
    change: dict[str, str | None], matcher: Matcher, paths: list[Path], tmp_path: Path
) -> None:
    path = tmp_path / "f.safetensors"
    matcher.extract(paths[0]).save(path)
    tensors, metadata = read_tensors(path)
    metadata = {name: value for name, value in {**metadata, **change}.items() if value is not None}
    save_file(tensors, path, metadata)
    with pytest.raises(InputError, match="not a file of features"):
        Features.load(path)


def test_the_foreground_goes_with_the_features(matcher: Matcher, paths: list[Path], tmp_path: Path) -> None:
    path, plain = tmp_path / "f.safetensors", matcher.extract(paths[0])
    features = replace(plain, foreground=torch.rand(1, *plain.grid))
    assert plain.foreground is None
    assert features.nbytes == plain.nbytes + 4 * plain.grid[0] * plain.grid[1]
    assert features.foreground is not None
    halved = features.half().foreground
    assert halved is not None
    assert halved.dtype == torch.float16
    features.save(path)
    torch.testing.assert_close(Features.load(path).foreground, features.foreground)
    with FeatureCache[Features](memory_bytes=0) as cache:  # goes to disk and comes back
        cache.put("a", features)
        found = cache.find("a")
        assert found is not None
        check_same(found, features)
        torch.testing.assert_close(found.foreground, features.foreground)
    tensors, metadata = read_tensors(path)
    save_file({**tensors, "foreground": torch.rand(2, 2)}, path, metadata)
    with pytest.raises(InputError, match="foreground has the shape"):
        Features.load(path)


def test_whole_numbers_are_no_features(matcher: Matcher, paths: list[Path], tmp_path: Path) -> None:
    path = tmp_path / "f.safetensors"
    matcher.extract(paths[0]).save(path)
    tensors, metadata = read_tensors(path)
    save_file({name: tensor.long() for name, tensor in tensors.items()}, path, metadata)
    with pytest.raises(InputError, match="no feature maps"):
        Features.load(path)


def test_models_in_bfloat16_have_a_fingerprint() -> None:
    layer = torch.nn.Linear(2, 2)
    assert len(Fingerprint(layer.bfloat16()).value) == 64


def test_a_memory_limit_counts_the_features_that_are_matched(paths: list[Path]) -> None:
    network = load_model("nearest-neighbour", changes=SMALL)
    large = Matcher(network, device="cpu", image_size=(256, 256)).extract(paths[0])
    with pytest.raises(InputError, match="more than the limit of 30"):
        Matcher(network, device="cpu", memory_mb=30).match(large, large)


@pytest.mark.parametrize("size", [(0, 10), (10, 10_000)])
def test_picture_sizes_are_checked(size: tuple[int, int]) -> None:
    with pytest.raises(ConfigError, match="image_size"):
        Matcher(load_model("nearest-neighbour"), device="cpu", image_size=size)


def test_a_file_is_decoded_once_however_many_views_of_it_are_tried(
    matcher: Matcher, paths: list[Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    """And with a cache its pixels are forgotten when the pair is matched."""
    decoded: list[str] = []
    real = pictures.read_picture
    monkeypatch.setattr(
        pictures, "read_picture", lambda file, name, *rest: decoded.append(name) or real(file, name, *rest)
    )
    cached = Matcher(matcher.model, device="cpu", cache=FeatureCache[Features]())
    for each in (matcher, cached):
        decoded.clear()
        result = each.match(paths[0], paths[1], poses="any", place="found")
        assert sorted(decoded) == sorted(map(str, paths[:2]))
    _ = result.target_picture
    assert len(decoded) == 3
