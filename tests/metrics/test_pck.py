import csv
import itertools
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import FrozenInstanceError
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose
from PIL import Image

from chmnet.data.pairs import AnnotatedImage, Pair
from chmnet.errors import ConfigError, InputError
from chmnet.metrics import (
    DEFAULT_PROTOCOLS,
    Prediction,
    Protocol,
    Score,
    alpha_key,
    alpha_keys,
    correct,
    curve,
    difficulty_table,
    hits,
    per_pair,
    reference_length,
    score,
)
from chmnet.pictures import Box

SPACES = ["resized", "original"]
THRESHOLDS = ["img", "bbox", "bbox-kp", "bbox-legacy"]
AVERAGES = ["pair", "keypoint", "class"]

# A target of 480×120 px. Squashed to 240×240, x is halved and y doubled.
SIZE = (120, 480)
TRUTH = [[40.0, 20.0], [200.0, 20.0], [40.0, 80.0]]  # resized (20, 40), (100, 40), (20, 160)
BOX = (20.0, 10.0, 320.0, 100.0)  # 300×90; resized 150×180
OFFSETS = [[24.0, 0.0], [0.0, -8.0], [30.0, 10.0]]  # 24, 8, √1000 ≈ 31.6 px; resized 12, 16, √(15² + 20²) = 25 px


def make_pair(
    name: str = "a",
    points: Sequence[Sequence[float]] = TRUTH,
    category: str = "cat",
    box: Box | None = BOX,
    flags: Mapping[str, int] | None = None,
) -> Pair:
    keypoints = np.array(points, dtype=np.float64).reshape(-1, 2)
    # Only the target counts: what stands in the source must not matter.
    source = AnnotatedImage(Path("source.png"), np.zeros_like(keypoints), box=(0.0, 0.0, 1.0, 1.0))
    return Pair(name, category, source, AnnotatedImage(Path("target.png"), keypoints, box), flags=flags or {})


def predict(pair: Pair, offsets: Any = 0.0, size: tuple[int, int] = SIZE) -> Prediction:
    """The truth, moved by some pixels of the image file."""
    return Prediction(pair.name, pair.target.keypoints + np.array(offsets), (7, 5), size)


def with_hits(name: str, category: str, hits: Sequence[int], **more: Any) -> tuple[Pair, Prediction]:
    """A pair and a prediction with these keypoints correct and the others far away."""
    pair = make_pair(name, [[10.0 * index, 5.0] for index in range(len(hits))], category, **more)
    return pair, predict(pair, [[0.0 if hit else 1000.0, 0.0] for hit in hits])


# ---------------------------------------------------------------- protocol


def test_default_protocols() -> None:
    chosen = {name: (item.space, item.threshold, item.average) for name, item in DEFAULT_PROTOCOLS.items()}
    assert chosen == {
        "pf-willow": ("resized", "bbox-kp", "pair"),
        "pf-pascal": ("resized", "img", "pair"),
        "spair-71k": ("original", "bbox", "pair"),
        "animal-pose": ("original", "bbox", "pair"),
        "coco": ("original", "bbox", "pair"),
    }
    assert {item.alphas for item in DEFAULT_PROTOCOLS.values()} == {(0.05, 0.1)}


def test_protocol_to_dict_and_back() -> None:
    protocol = Protocol("original", "bbox", "class", (0.1, 0.2), (100, 200))
    plain = protocol.to_dict()
    assert plain == {
        "space": "original",
        "threshold": "bbox",
        "average": "class",
        "alphas": [0.1, 0.2],
        "image_size": [100, 200],
    }
    assert Protocol.from_dict(json.loads(json.dumps(plain))) == protocol


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({}, ["α = 0.05, 0.1", "240×240 px (resized)", "(img)", "(pair)"]),
        ({"image_size": (100, 200)}, ["200×100 px"]),
        ({"space": "original", "threshold": "bbox"}, ["image file (original)", "object's box (bbox)"]),
        ({"threshold": "bbox-kp", "average": "keypoint"}, ["keypoints' own box (bbox-kp)", "(keypoint)"]),
        ({"threshold": "bbox-legacy", "average": "class"}, ["over-large length (bbox-legacy)", "(class)"]),
    ],
)
def test_describe(changes: dict[str, Any], words: list[str]) -> None:
    line = Protocol().replace(**changes).describe()
    assert "\n" not in line
    for word in words:
        assert word in line


def test_descriptions_differ_as_protocols_do() -> None:
    lines = {
        Protocol(space, threshold, average).describe()
        for space, threshold, average in itertools.product(SPACES, THRESHOLDS, AVERAGES)
    }
    assert len(lines) == 2 * 4 * 3


def construct(**fields: Any) -> None:
    """``Protocol(**fields)`` as it is outside tests, where nothing enforces annotations."""
    protocol = Protocol()
    for name, value in fields.items():
        object.__setattr__(protocol, name, value)
    protocol.__post_init__()


@pytest.mark.parametrize(
    ("name", "word", "message"),
    [
        ("space", "squashed", "must be one of resized, original, got 'squashed'"),
        ("threshold", "box", "must be one of img, bbox, bbox-kp, bbox-legacy, got 'box'"),
        ("average", "mean", "must be one of pair, keypoint, class, got 'mean'"),
    ],
)
def test_words_that_are_no_choice(name: str, word: str, message: str) -> None:
    with pytest.raises(ConfigError, match=f"'{name}' in Protocol {message}"):
        Protocol().replace(**{name: word})
    with pytest.raises(ConfigError, match=f"^'{name}' {message}"):
        construct(**{name: word})


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"alphas": ()}, r"alphas must be one or more different numbers, got \[\]"),
        ({"alphas": (0.1, 0.1)}, "alphas must be one or more different numbers"),
        ({"alphas": (5.0,)}, "alphas are shares of a length, from 0 to 1, got 5.0; 5 % is 0.05"),
        ({"alphas": (-0.1,)}, "from 0 to 1, got -0.1"),
        ({"alphas": (math.nan,)}, "from 0 to 1, got nan"),
        ({"image_size": (0, 240)}, r"image_size must be \(height, width\) of at least 1 px, got \(0, 240\)"),
        ({"image_size": (240,)}, "image_size must be"),
    ],
)
def test_wrong_protocols(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        construct(**changes)


def test_unknown_key_of_a_protocol() -> None:
    with pytest.raises(ConfigError, match="unknown key 'threshhold' in Protocol; did you mean 'threshold'"):
        Protocol().replace(threshhold="img")


def test_protocols_do_not_change() -> None:
    with pytest.raises(FrozenInstanceError):
        Protocol().space = "original"  # type: ignore[misc]


def test_alpha_keys() -> None:
    assert [alpha_key(alpha) for alpha in (0.05, 0.1, np.float64(0.15), 1)] == ["0.05", "0.1", "0.15", "1.0"]
    assert alpha_keys({0.05: 1.5, 0.1: 2.5}) == {"0.05": 1.5, "0.1": 2.5}


# ---------------------------------------------------------------- one pair, by hand

# Each with its length, then the hits at α = 0.05, 0.1, 0.15, as the comment's limits give them.
BY_HAND = {
    # max(480, 120); limits 24, 48, 72 against 24, 8, 31.6: the first lies on its limit.
    ("original", "img"): (480, "110", "111", "111"),
    # max(300, 90); limits 15, 30, 45
    ("original", "bbox"): (300, "010", "110", "111"),
    # keypoints from 40 to 200 and 20 to 80: max(160, 60); limits 8, 16, 24, the 8 and the 24 just reached
    ("original", "bbox-kp"): (160, "010", "010", "110"),
    # from −2 to 200 and −2 to 80: max(202, 82); limits 10.1, 20.2, 30.3
    ("original", "bbox-legacy"): (202, "010", "010", "110"),
    # max(240, 240); limits 12, 24, 36 against 12, 16, 25
    ("resized", "img"): (240, "100", "110", "111"),
    # max(300 / 2, 90 · 2); limits 9, 18, 27
    ("resized", "bbox"): (180, "000", "110", "111"),
    # max(160 / 2, 60 · 2); limits 6, 12, 18
    ("resized", "bbox-kp"): (120, "000", "100", "110"),
    # from −2 to 100 and −2 to 160: max(102, 162); limits 8.1, 16.2, 24.3
    ("resized", "bbox-legacy"): (162, "000", "110", "110"),
}
ALPHAS = (0.05, 0.1, 0.15)


@pytest.mark.parametrize(("space", "threshold"), BY_HAND)
def test_one_pair_by_hand(space: str, threshold: str) -> None:
    protocol = Protocol().replace(space=space, threshold=threshold, alphas=ALPHAS)
    length, *hits = BY_HAND[space, threshold]
    pair = make_pair()
    assert reference_length(pair, SIZE, protocol) == pytest.approx(length, rel=1e-12)
    expected = {alpha: [mark == "1" for mark in marks] for alpha, marks in zip(ALPHAS, hits, strict=True)}
    found = correct(pair, predict(pair, OFFSETS), protocol)
    assert {alpha: hit.tolist() for alpha, hit in found.items()} == expected
    assert all(hit.dtype == bool for hit in found.values())


@pytest.mark.parametrize("average", AVERAGES)
@pytest.mark.parametrize(("space", "threshold"), BY_HAND)
def test_every_protocol_by_hand(space: str, threshold: str, average: str) -> None:
    """The pair above, a cat with s of 3 correct, beside two dogs with their one keypoint correct."""
    protocol = Protocol().replace(space=space, threshold=threshold, average=average, alphas=ALPHAS)
    pairs = [make_pair("a"), make_pair("b", [[9.0, 9.0]], "dog"), make_pair("c", [[50.0, 9.0]], "dog")]
    predictions = [predict(pairs[0], OFFSETS), predict(pairs[1]), predict(pairs[2])]
    result = score(pairs, predictions, protocol)
    for alpha, marks in zip(ALPHAS, BY_HAND[space, threshold][1:], strict=True):
        hits = str(marks).count("1")
        expected = {
            "pair": (hits / 3 + 1 + 1) / 3,
            "keypoint": (hits + 1 + 1) / 5,
            "class": (hits / 3 + (1 + 1) / 2) / 2,
        }[average]
        assert result.pck[alpha] == pytest.approx(100 * expected)
        assert result.per_class["cat"][alpha] == pytest.approx(100 * hits / 3)
        assert result.per_class["dog"][alpha] == 100


def test_another_resized_space() -> None:
    """To 60×120 px (height 60): x quartered, y halved; keypoints 40×30, box 75×45."""
    for threshold, length in {"img": 120, "bbox": 75, "bbox-kp": 40, "bbox-legacy": 52}.items():
        protocol = Protocol().replace(threshold=threshold, image_size=(60, 120))
        assert reference_length(make_pair(), SIZE, protocol) == pytest.approx(length)


@pytest.mark.parametrize("width", [300, 320, 7, 1023])
@pytest.mark.parametrize("alpha", [0.05, 0.07, 0.1, 0.29])
def test_the_limit_is_correct_and_beyond_is_not(width: int, alpha: float) -> None:
    """Also where α · length and the scaled distance are rounded differently."""
    pair = make_pair(points=[[0.3 * width, 5.0]])
    protocol = Protocol(alphas=(alpha,))
    for factor, expected in ((1.0, True), (-1.0, True), (1 + 1e-6, False), (1 - 1e-6, True)):
        prediction = predict(pair, [[factor * alpha * width, 0.0]], (100, width))
        assert correct(pair, prediction, protocol)[alpha].tolist() == [expected]


@pytest.mark.parametrize(("precision", "beyond"), [("float32", 1e-5), ("float64", 1e-6)])
def test_one_rule_for_arrays_and_tensors(precision: str, beyond: float) -> None:
    """Limits broadcast; a distance on its limit is correct although 24.000001 may be what rounding makes of it."""
    distances = np.array([12.0, 0.2 * 120, 24.0 * (1 + beyond), 0.0], dtype=precision)
    limits = (np.array([0.05, 0.1]) * 240)[:, None]
    expected = [[True, False, False, True], [True, True, False, True]]
    assert hits(distances, limits).tolist() == expected
    assert hits(torch.from_numpy(distances), torch.from_numpy(limits.astype(precision))).tolist() == expected
    assert hits(distances, 24.0).tolist() == expected[1]


def test_limit_in_whole_pixels() -> None:
    """0.29 · 100 is a little less than 29 in binary numbers."""
    pair = make_pair(points=[[10.0, 50.0]])
    protocol = Protocol("original", "img", alphas=(0.29,))
    assert correct(pair, predict(pair, [[29.0, 0.0]], (100, 100)), protocol)[0.29].tolist() == [True]
    assert correct(pair, predict(pair, [[29.01, 0.0]], (100, 100)), protocol)[0.29].tolist() == [False]


def test_alpha_zero_asks_for_the_point_itself() -> None:
    pair = make_pair()
    found = correct(pair, predict(pair, [[0.0, 0.0], [1e-6, 0.0], [5.0, 5.0]]), Protocol(alphas=(0.0,)))
    assert found[0.0].tolist() == [True, False, False]


@pytest.mark.parametrize("space", SPACES)
def test_single_keypoint_has_no_extent(space: str) -> None:
    protocol = Protocol().replace(space=space, threshold="bbox-kp")
    pair = make_pair(points=[[30.0, 40.0]])
    assert reference_length(pair, SIZE, protocol) == 0
    assert correct(pair, predict(pair), protocol)[0.1].tolist() == [True]
    assert correct(pair, predict(pair, [[0.01, 0.0]]), protocol)[0.1].tolist() == [False]


def test_legacy_length_of_keypoints_far_outside() -> None:
    """The box around the keypoints and (−2, −2): a keypoint at −10 is its edge, as in the authors' code."""
    pair = make_pair(points=[[-10.0, 5.0], [50.0, 20.0]])
    assert reference_length(pair, (100, 100), Protocol("original", "bbox-legacy")) == 60


def test_a_predicted_point_outside_the_image_is_only_wrong() -> None:
    pair = make_pair()
    assert not correct(pair, predict(pair, -5000.0), Protocol())[0.1].any()


@pytest.mark.parametrize("dtype", [np.float32, np.int64, np.uint8])
def test_numbers_of_any_kind(dtype: type) -> None:
    prediction = Prediction("a", np.array(TRUTH, dtype=dtype), SIZE, SIZE)
    assert correct(make_pair(), prediction, Protocol("original", alphas=(0.0,)))[0.0].all()


# ---------------------------------------------------------------- sets of pairs


def three_pairs() -> tuple[list[Pair], list[Prediction]]:
    """Two cats, 1 of 1 and 1 of 4 correct; a dog, 1 of 2."""
    both = [with_hits("a", "cat", [1]), with_hits("b", "cat", [0, 1, 0, 0]), with_hits("c", "dog", [0, 1])]
    return [pair for pair, _ in both], [prediction for _, prediction in both]


@pytest.mark.parametrize(
    ("average", "all_pairs", "cat"),
    [
        ("pair", (1 + 1 / 4 + 1 / 2) / 3, (1 + 1 / 4) / 2),
        ("keypoint", 3 / 7, 2 / 5),
        ("class", ((1 + 1 / 4) / 2 + 1 / 2) / 2, (1 + 1 / 4) / 2),
    ],
)
def test_averages_by_hand(average: str, all_pairs: float, cat: float) -> None:
    result = score(*three_pairs(), Protocol().replace(average=average))
    assert result.pck == pytest.approx({0.05: 100 * all_pairs, 0.1: 100 * all_pairs})
    assert result.per_class["cat"][0.1] == pytest.approx(100 * cat)
    assert result.per_class["dog"][0.1] == 50
    assert list(result.per_class) == ["cat", "dog"]
    assert (result.pairs, result.keypoints, result.excluded) == (3, 7, 0)
    assert result.protocol.average == average


def test_averages_differ() -> None:
    figures = [score(*three_pairs(), Protocol().replace(average=average)).pck[0.1] for average in AVERAGES]
    assert min(abs(one - other) for one, other in itertools.combinations(figures, 2)) > 2


def test_averages_agree_on_equal_pairs_and_classes() -> None:
    both = [with_hits("a", "cat", [1, 0]), with_hits("b", "dog", [1, 1])]
    pairs, predictions = [pair for pair, _ in both], [prediction for _, prediction in both]
    assert [score(pairs, predictions, Protocol().replace(average=item)).pck[0.1] for item in AVERAGES] == [75] * 3


def test_order_does_not_matter() -> None:
    pairs, predictions = three_pairs()
    for average in AVERAGES:
        protocol = Protocol().replace(average=average)
        expected = score(pairs, predictions, protocol).pck
        assert score(pairs[::-1], predictions, protocol).pck == pytest.approx(expected)
        assert score(iter(pairs), iter(predictions[::-1]), protocol).pck == pytest.approx(expected)


def test_predictions_of_other_pairs_are_not_looked_at() -> None:
    pairs, predictions = three_pairs()
    assert score(pairs[:1], predictions, Protocol()).pck == {0.05: 100, 0.1: 100}


@pytest.mark.parametrize("average", AVERAGES)
@pytest.mark.parametrize("threshold", THRESHOLDS)
def test_pairs_without_keypoints_are_left_out_and_counted(threshold: str, average: str) -> None:
    protocol = Protocol().replace(threshold=threshold, average=average)
    pairs, predictions = three_pairs()
    expected = score(pairs, predictions, protocol)
    empty = [make_pair("none", [], "cat"), make_pair("nothing", [], "cow")]
    result = score([empty[0], *pairs, empty[1]], [*predictions, predict(empty[0])], protocol)
    assert (result.pck, result.per_class) == (expected.pck, expected.per_class)
    assert (result.pairs, result.keypoints, result.excluded) == (3, 7, 2)
    assert set(per_pair([*empty, *pairs], predictions, protocol)) == {"a", "b", "c"}


def test_per_pair() -> None:
    pair = make_pair("d")
    pairs, predictions = three_pairs()
    found = per_pair([*pairs, pair], [*predictions, predict(pair, OFFSETS)], Protocol())
    expected = {"a": [100, 100], "b": [25, 25], "c": [50, 50], "d": [100 / 3, 200 / 3]}
    assert list(found) == list(expected)
    for name, values in expected.items():
        assert found[name] == pytest.approx(dict(zip((0.05, 0.1), values, strict=True)))


def test_curve_by_hand() -> None:
    """Resized distances 12, 16, 25 of 240: shares 0.05, 0.0667, 0.1042."""
    pair = make_pair()
    found = curve([pair], [predict(pair, OFFSETS)], Protocol(), np.array([0.0, 0.04, 0.05, 0.07, 0.2]))
    assert [alpha for alpha, _ in found] == [0.0, 0.04, 0.05, 0.07, 0.2]
    assert_allclose([value for _, value in found], [0, 0, 100 / 3, 200 / 3, 100])
    assert all(type(number) is float for point in found for number in point)


def test_curve_goes_through_the_score() -> None:
    pair = make_pair()
    for average in AVERAGES:
        protocol = Protocol().replace(average=average, threshold="bbox")
        result = score([pair], [predict(pair, OFFSETS)], protocol)
        assert dict(curve([pair], [predict(pair, OFFSETS)], protocol, protocol.alphas)) == result.pck


def test_difficulty_table_by_hand() -> None:
    both = [
        with_hits("a", "cat", [1], flags={"occlusion": 0, "viewpoint": 1, "scale": 0, "truncation": 0}),
        with_hits("b", "cat", [0, 1, 0, 0], flags={"occlusion": 0, "viewpoint": 0, "scale": 0, "truncation": 3}),
        with_hits("c", "dog", [0, 1], flags={"occlusion": 0, "viewpoint": 1, "scale": 2, "truncation": 0}),
        with_hits("d", "dog", [0, 0], flags={"weather": 1}),
        with_hits("e", "dog", [0, 0]),
    ]
    pairs, predictions = [pair for pair, _ in both], [prediction for _, prediction in both]
    table = difficulty_table(pairs, predictions, Protocol(alphas=(0.1,)))
    assert list(table) == ["viewpoint", "scale", "truncation", "occlusion", "weather"]
    simple = {
        flag: {level: (cell["pairs"], cell["pck"][0.1]) for level, cell in levels.items()}
        for flag, levels in table.items()
    }
    assert simple == {
        "viewpoint": {0: (1, 25), 1: (2, 75)},
        "scale": {0: (2, 62.5), 2: (1, 50)},
        "truncation": {0: (2, 75), 3: (1, 25)},
        "occlusion": {0: (3, pytest.approx(175 / 3))},
        "weather": {1: (1, 0)},
    }
    by_keypoint = difficulty_table(pairs, predictions, Protocol(average="keypoint", alphas=(0.1,)))
    assert by_keypoint["scale"][0]["pck"][0.1] == pytest.approx(40)
    by_class = difficulty_table(pairs, predictions, Protocol(average="class", alphas=(0.1,)))
    assert by_class["occlusion"][0]["pck"][0.1] == pytest.approx((62.5 + 50) / 2)


def test_no_flags_no_difficulty_table() -> None:
    assert difficulty_table(*three_pairs(), Protocol()) == {}


# ---------------------------------------------------------------- properties

Point = tuple[float, float]
points = st.tuples(st.floats(-20, 500), st.floats(-20, 500))
offsets = st.tuples(st.floats(-60, 60), st.floats(-60, 60))
Draw = tuple[tuple[int, int], list[tuple[str, list[tuple[Point, Point]]]]]
scored_sets = st.tuples(
    st.tuples(st.integers(1, 600), st.integers(1, 600)),
    st.lists(
        st.tuples(st.sampled_from(["cat", "dog"]), st.lists(st.tuples(points, offsets), min_size=1, max_size=6)),
        min_size=1,
        max_size=4,
    ),
)
"""A size of the target; for each pair its class, and for each keypoint its place and how far it is missed."""
protocols = st.fixed_dictionaries(
    {
        "space": st.sampled_from(SPACES),
        "threshold": st.sampled_from(THRESHOLDS),
        "average": st.sampled_from(AVERAGES),
        "alphas": st.lists(st.floats(0, 1), min_size=2, max_size=5, unique=True),
        "image_size": st.sampled_from([(240, 240), (100, 333)]),
    }
)


def build(drawn: Draw) -> tuple[list[Pair], list[Prediction]]:
    # Not inside the strategy: enforcing annotations draws random numbers, which Hypothesis forbids there.
    size, sets = drawn
    pairs, predictions = [], []
    for number, (category, keypoints) in enumerate(sets):
        pairs.append(make_pair(str(number), [place for place, _ in keypoints], category))
        predictions.append(predict(pairs[-1], [offset for _, offset in keypoints], size))
    return pairs, predictions


@settings(max_examples=60, deadline=None)
@given(scored_sets, protocols)
def test_monotone_in_alpha(drawn: Draw, choices: dict[str, Any]) -> None:
    data, protocol = build(drawn), Protocol.from_dict(choices)
    result = score(*data, protocol)
    for values in (result.pck, *result.per_class.values()):
        figures = [values[alpha] for alpha in sorted(protocol.alphas)]
        assert all(lower <= higher + 1e-9 for lower, higher in itertools.pairwise(figures))
        assert all(0 <= figure <= 100 + 1e-9 for figure in figures)


@settings(max_examples=30, deadline=None)
@given(scored_sets, protocols)
def test_perfect_predictions_give_100(drawn: Draw, choices: dict[str, Any]) -> None:
    data, protocol = build(drawn), Protocol.from_dict(choices)
    predictions = [predict(pair) for pair in data[0]]
    assert set(score(data[0], predictions, protocol).pck.values()) == {100.0}


@settings(max_examples=60, deadline=None)
@given(scored_sets, protocols)
def test_score_against_loops(drawn: Draw, choices: dict[str, Any]) -> None:
    data, protocol = build(drawn), Protocol.from_dict(choices)
    found = score(*data, protocol).pck
    for alpha in protocol.alphas:
        expected, doubtful = loop_pck(*data, protocol, alpha)
        if not doubtful:
            assert found[alpha] == pytest.approx(expected)


def loop_pck(
    pairs: list[Pair], predictions: list[Prediction], protocol: Protocol, alpha: float
) -> tuple[float, bool]:
    """PCK with plain numbers; and whether a distance is too near its limit for two ways of rounding to agree."""
    doubtful = False
    classes: dict[str, list[list[bool]]] = {}
    for pair, prediction in zip(pairs, predictions, strict=True):
        height, width = prediction.target_size
        across, down = 1.0, 1.0
        if protocol.space == "resized":
            across, down = protocol.image_size[1] / width, protocol.image_size[0] / height
        xs = [x * across for x, _ in pair.target.keypoints.tolist()]
        ys = [y * down for _, y in pair.target.keypoints.tolist()]
        length = {
            "img": max(width * across, height * down),
            "bbox": max((BOX[2] - BOX[0]) * across, (BOX[3] - BOX[1]) * down),
            "bbox-kp": max(max(xs) - min(xs), max(ys) - min(ys)),
            "bbox-legacy": max(max([*xs, -2]) - min([*xs, -2]), max([*ys, -2]) - min([*ys, -2])),
        }[protocol.threshold]
        hits = []
        for x, y, (found_x, found_y) in zip(xs, ys, prediction.points.tolist(), strict=True):
            distance = math.dist((x, y), (found_x * across, found_y * down))
            doubtful |= math.isclose(distance, alpha * length, rel_tol=1e-6, abs_tol=1e-9)
            hits.append(distance <= alpha * length)
        classes.setdefault(pair.category, []).append(hits)
    means = {name: [sum(hits) / len(hits) for hits in group] for name, group in classes.items()}
    every_pair = [mean for group in means.values() for mean in group]
    every_hit = [hit for group in classes.values() for hits in group for hit in hits]
    share = {
        "pair": sum(every_pair) / len(every_pair),
        "keypoint": sum(every_hit) / len(every_hit),
        "class": sum(sum(group) / len(group) for group in means.values()) / len(means),
    }[protocol.average]
    return 100 * share, doubtful


@settings(max_examples=40, deadline=None)
@given(st.lists(points, min_size=1, max_size=6), st.sampled_from(SPACES))
def test_legacy_is_never_shorter_than_the_true_box(keypoints: list[Point], space: str) -> None:
    pair = make_pair(points=keypoints)
    true, legacy = (
        reference_length(pair, SIZE, Protocol().replace(space=space, threshold=threshold))
        for threshold in ("bbox-kp", "bbox-legacy")
    )
    assert legacy >= true
    if min(min(point) for point in keypoints) >= 0:
        assert legacy >= true + 2 - 1e-9


@settings(max_examples=40, deadline=None)
@given(scored_sets, protocols)
def test_x_and_y_may_change_places(drawn: Draw, choices: dict[str, Any]) -> None:
    (pairs, predictions), protocol = build(drawn), Protocol.from_dict(choices)
    left, top, right, bottom = BOX
    turned_pairs = [
        make_pair(pair.name, pair.target.keypoints[:, ::-1], pair.category, (top, left, bottom, right))
        for pair in pairs
    ]
    turned_predictions = [
        Prediction(item.pair, item.points[:, ::-1], item.source_size, item.target_size[::-1])
        for item in predictions
    ]
    turned_protocol = protocol.replace(image_size=protocol.image_size[::-1])
    assert score(turned_pairs, turned_predictions, turned_protocol).pck == score(pairs, predictions, protocol).pck


@pytest.mark.parametrize("threshold", ["img", "bbox"])
@pytest.mark.parametrize("space", SPACES)
def test_truth_and_prediction_may_change_places(space: str, threshold: str) -> None:
    """Where the length does not come from the keypoints."""
    protocol = Protocol().replace(space=space, threshold=threshold, alphas=ALPHAS)
    pair = make_pair()
    prediction = predict(pair, OFFSETS)
    swapped = make_pair(points=prediction.points)
    back = Prediction("a", pair.target.keypoints, SIZE, SIZE)
    assert score([pair], [prediction], protocol).pck == score([swapped], [back], protocol).pck


@pytest.mark.parametrize("threshold", THRESHOLDS)
def test_resized_space_does_not_know_the_file_size(threshold: str) -> None:
    protocol = Protocol().replace(threshold=threshold, alphas=ALPHAS)
    pair = make_pair()
    larger = make_pair(points=np.array(TRUTH) * 4, box=tuple(4 * side for side in BOX))
    assert (
        score([pair], [predict(pair, OFFSETS)], protocol).pck
        == score([larger], [predict(larger, np.array(OFFSETS) * 4, (480, 1920))], protocol).pck
    )


# ---------------------------------------------------------------- mistakes


def nan_points(value: float) -> np.ndarray:
    points = np.array(TRUTH)
    points[1, 0] = value
    return points


@pytest.mark.parametrize(
    ("points", "message"),
    [
        (np.array(TRUTH[:2]), "pair a has 3 keypoints, the prediction 2 points"),
        (np.array([*TRUTH, [0.0, 0.0]]), "pair a has 3 keypoints, the prediction 4 points"),
        (np.zeros((0, 2)), "pair a has 3 keypoints, the prediction 0 points"),
        (nan_points(math.nan), "pair a: the predicted points must be finite numbers, got NaN or infinity"),
        (nan_points(math.inf), "pair a: the predicted points must be finite numbers, got NaN or infinity"),
        (np.zeros((2, 3)), r"pair a: the predicted points must be rows \(x, y\), got float64 of shape \[2, 3\]"),
        (np.zeros(3), r"pair a: the predicted points must be rows \(x, y\), got float64 of shape \[3\]"),
        (np.array(TRUTH).astype(str), r"pair a: the predicted points must be rows \(x, y\), got <U"),
    ],
)
def test_unusable_predictions(points: np.ndarray, message: str) -> None:
    prediction = Prediction("a", points, SIZE, SIZE)
    with pytest.raises(InputError, match=message):
        correct(make_pair(), prediction, Protocol())
    with pytest.raises(InputError, match=message):
        score([make_pair()], [prediction], Protocol())


def test_prediction_of_another_pair() -> None:
    with pytest.raises(InputError, match="the prediction is of pair b, not of pair a"):
        correct(make_pair("a"), predict(make_pair("b")), Protocol())


@pytest.mark.parametrize("function", [score, per_pair, difficulty_table])
def test_missing_and_doubled_predictions(function: Any) -> None:
    pairs, predictions = three_pairs()
    with pytest.raises(InputError, match="there is no prediction for pair b"):
        function(pairs, [predictions[0], predictions[2]], Protocol())
    with pytest.raises(InputError, match="pair c has two predictions"):
        function(pairs, [*predictions, predictions[2]], Protocol())
    with pytest.raises(InputError, match="two pairs have the name a"):
        function([*pairs, pairs[0]], predictions, Protocol())


def test_mistakes_in_a_curve() -> None:
    pairs, predictions = three_pairs()
    with pytest.raises(InputError, match="there is no prediction for pair a"):
        curve(pairs, [], Protocol(), [0.1])
    with pytest.raises(ConfigError, match="from 0 to 1, got 10"):
        curve(pairs, predictions, Protocol(), [10])
    with pytest.raises(ConfigError, match="one or more different numbers"):
        curve(pairs, predictions, Protocol(), [])


@pytest.mark.parametrize("pairs", [[], [make_pair(points=[])]], ids=["no pairs", "no keypoints"])
def test_nothing_to_score(pairs: list[Pair]) -> None:
    with pytest.raises(InputError, match=f"there is nothing to score: {len(pairs)} pairs, none with keypoints"):
        score(pairs, [], Protocol())


@pytest.mark.parametrize("space", SPACES)
def test_no_box(space: str) -> None:
    with pytest.raises(InputError, match="pair a has no box of the target's object; use threshold bbox-kp or img"):
        reference_length(make_pair(box=None), SIZE, Protocol().replace(space=space, threshold="bbox"))


@pytest.mark.parametrize(
    "box",
    [
        (10.0, 10.0, 10.0, 10.0),
        (50.0, 10.0, 20.0, 90.0),
        (10.0, 90.0, 50.0, 10.0),
        (0.0, 0.0, math.nan, 5.0),
        (0.0, 0.0, math.inf, 5.0),
    ],
    ids=str,
)
def test_box_around_nothing(box: Box) -> None:
    with pytest.raises(InputError, match="pair a: the target's box must be left, top, right, bottom around"):
        reference_length(make_pair(box=box), SIZE, Protocol(threshold="bbox"))


def test_flat_box() -> None:
    box = (10.0, 30.0, 60.0, 30.0)
    assert reference_length(make_pair(box=box), SIZE, Protocol("original", "bbox")) == 50


@pytest.mark.parametrize("threshold", ["bbox-kp", "bbox-legacy"])
def test_no_keypoints_to_measure(threshold: str) -> None:
    with pytest.raises(InputError, match=f"pair a has no keypoints.*{threshold}"):
        reference_length(make_pair(points=[]), SIZE, Protocol().replace(threshold=threshold))


def test_target_without_size() -> None:
    with pytest.raises(InputError, match=r"pair a: the size of the target must be at least 1 px, got \(0, 480\)"):
        reference_length(make_pair(), (0, 480), Protocol())


def test_broken_annotation() -> None:
    pair = make_pair(points=[[math.nan, 3.0]])
    with pytest.raises(InputError, match="pair a: the target's keypoints must be finite numbers"):
        correct(pair, Prediction("a", np.zeros((1, 2)), SIZE, SIZE), Protocol())


# ---------------------------------------------------------------- real data


def test_rows_of_pf_willow(shared: Path) -> None:
    """Every 50th pair: the truth scores 100 whatever the protocol; the legacy length is as in REFERENCE_NOTES."""
    folder = shared / "datasets" / "PF-WILLOW"
    with (folder / "test_pairs.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))[::50]
    assert len(rows) == 18
    pairs, predictions = [], []
    for number, row in enumerate(rows):
        sides = []
        for side in "AB":
            points = [[float(row[f"{axis}{side}{index}"]) for axis in "XY"] for index in range(10)]
            sides.append(AnnotatedImage(folder / row[f"image{side}"], np.array(points)))
        with Image.open(sides[1].path) as image:
            width, height = image.size
        pair = Pair(str(number), sides[1].path.parent.name, *sides)
        pairs.append(pair)
        predictions.append(Prediction(pair.name, pair.target.keypoints, (1, 1), (height, width)))
        resized = pair.target.keypoints * [240 / width, 240 / height]
        legacy = reference_length(pair, (height, width), Protocol(threshold="bbox-legacy"))
        true = reference_length(pair, (height, width), Protocol(threshold="bbox-kp"))
        assert legacy == pytest.approx(resized.max() + 2)
        assert true == pytest.approx(max(np.ptp(resized[:, 0]), np.ptp(resized[:, 1])))
        assert legacy > true + 2
    for space, threshold, average in itertools.product(SPACES, ["img", "bbox-kp", "bbox-legacy"], AVERAGES):
        result = score(pairs, predictions, Protocol().replace(space=space, threshold=threshold, average=average))
        assert result.pck == {0.05: 100, 0.1: 100}
        assert (result.pairs, result.keypoints) == (18, 180)


def test_scores_are_frozen() -> None:
    result = score(*three_pairs(), Protocol())
    assert isinstance(result, Score)
    with pytest.raises(FrozenInstanceError):
        result.pairs = 0  # type: ignore[misc]
