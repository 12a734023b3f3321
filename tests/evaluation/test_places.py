"""When a thing is searched in the other picture, fitted to annotated pairs."""

import numpy as np
import pytest
from PIL import Image

from chmnet import Matcher
from chmnet.data.pairs import AnnotatedImage, Pair
from chmnet.errors import InputError
from chmnet.evaluation.places import SHARES, Agreements, collect_places, fit_place, other_category, paste
from chmnet.evaluation.turns import collect_turns
from chmnet.pictures import Picture
from chmnet.weights import load_model
from tests.conftest import REPOSITORY

EXAMPLES = REPOSITORY / "examples"


def pair(first: str, second: str, category: str) -> Pair:
    sides = [AnnotatedImage(EXAMPLES / f"{name}.png", np.zeros((0, 2))) for name in (first, second)]
    return Pair(f"{first}-{second}", category, sides[0], sides[1])


PAIRS = [pair("donkey", "zebra", "animal"), pair("sedan", "sedan", "car")]


def test_reduced_targets_agree_less() -> None:
    found = collect_places(PAIRS, load_model("chmnet-lite"), device="cpu")
    assert len(found.plain) == len(PAIRS)
    assert len(found.reduced) == len(PAIRS) * len(SHARES)
    assert found.plain.min() > np.median(found.reduced)
    assert found.reduced.min() < fit_place([found])[0] <= found.plain.max()


def test_no_pairs_are_refused() -> None:
    model = load_model("nearest-neighbour")
    for collect in (collect_places, collect_turns):
        with pytest.raises(InputError, match="a set of pairs is empty"):
            collect([], model, device="cpu")


def test_every_set_counts_the_same() -> None:
    easy, hard = Agreements(np.full(90, 0.8), np.full(90, 0.5)), Agreements(np.full(3, 0.4), np.full(3, 0.2))
    assert fit_place([easy]) == (0.65,)
    assert fit_place([hard]) == (0.3,)
    assert fit_place([hard, hard, easy]) == (0.3,)


def test_no_more_than_a_quarter_of_a_set_is_searched() -> None:
    like = Agreements(np.linspace(0.5, 0.9, 100), np.full(100, 0.95))  # on a larger thing that is like it
    limit = fit_place([like, Agreements(np.full(3, 0.99), np.full(3, 0.96))])[0]
    assert (like.plain < limit).mean() <= 0.25


def test_pasted_pictures_lie_in_their_box() -> None:
    generator = np.random.default_rng(1)
    canvas, box = paste(EXAMPLES / "zebra.png", EXAMPLES / "sedan.png", 1 / 3, generator)
    with Image.open(EXAMPLES / "zebra.png") as zebra:
        assert canvas.size == zebra.size
        width, height = round(box[2] - box[0]), round(box[3] - box[1])
        small = np.asarray(Picture(EXAMPLES / "zebra.png").image.resize((width, height)))
    np.testing.assert_array_equal(np.asarray(canvas.crop([round(side) for side in box])), small)
    assert other_category(PAIRS, PAIRS[0], generator).stem == "sedan"
    assert other_category(PAIRS[:1], PAIRS[0], generator).stem == "zebra"


def test_a_model_searches_where_its_own_number_says(monkeypatch: pytest.MonkeyPatch) -> None:
    searched: list[float] = []
    monkeypatch.setattr("chmnet.place._search", lambda *arguments: searched.append(arguments[-1]))
    model = load_model("chmnet-lite")
    for number in (99.0, 0.001):
        model.config = model.config.replace(calibration={"place": (number,)})
        Matcher(model, "cpu", poses="upright").match(
            EXAMPLES / "donkey.png", EXAMPLES / "zebra.png", place="found"
        )
    assert searched == [99.0]
