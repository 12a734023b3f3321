"""The choice of a turn, fitted to annotated pairs."""

from dataclasses import replace

import numpy as np
import pytest

from chmnet.data.pairs import AnnotatedImage, Pair
from chmnet.errors import InputError
from chmnet.evaluation.turns import MOST_MISSED, TurnEvidence, collect_turns, fit_turns
from chmnet.turns import TURNS, turn_evidence, turn_probability
from chmnet.weights import load_model
from tests.conftest import REPOSITORY


def agreeing(best: float, others: float, correct: float = 1.0, count: int = 20) -> TurnEvidence:
    """Pictures that agree so much as they are, and turned; every other one a little less."""
    values = np.tile([best] + [others] * 11, (count, 1)) * np.linspace(1, 0.9, count)[:, None]
    return TurnEvidence(values, values, np.tile([0.0] + [40.0] * 11, (count, 1)), np.full(count, correct))


def probability(found: TurnEvidence, numbers: tuple[float, ...], turn: int, row: int = 0) -> float:
    """Of another turn by so many steps, where the right one is by ``turn`` steps."""
    coarse = list(np.roll(found.small[row], turn)[1:])
    best = int(np.argmax(coarse))
    return turn_probability(turn_evidence(np.roll(found.large[row], turn)[0], coarse[best], coarse, best), numbers)


def test_turned_pictures_are_turned_and_others_are_not() -> None:
    found = replace(agreeing(0.5, 0.2), twist=np.full((20, 12), 40.0))  # always tried
    numbers = fit_turns([found])
    assert probability(found, numbers, 3) > 0.9
    assert probability(found, numbers, 0) < 0.5


def test_pairs_that_would_be_turned_raise_the_bar() -> None:
    clear = replace(agreeing(0.5, 0.2), twist=np.full((20, 12), 40.0))
    doubtful = clear.large.copy()
    doubtful[::2, 4] = 0.6
    bad = replace(clear, small=doubtful, large=doubtful)
    numbers = fit_turns([clear, bad])
    assert probability(bad, numbers, 0) < 0.5
    worthless = replace(bad, correct=np.tile([0.0, 1.0], 10))  # nothing is right there, nothing is lost
    assert fit_turns([clear, worthless])[1] > numbers[1]


def test_nothing_is_tried_where_few_turned_targets_agree_so_much() -> None:
    straight = replace(agreeing(0.5, 0.2), twist=np.zeros((20, 12)))
    enough, *_ = fit_turns([straight])
    assert (straight.large[:, 1:] >= enough).mean() <= MOST_MISSED
    assert enough < 0.21
    assert fit_turns([agreeing(0.5, 0.2)])[0] < 0.01  # none is straight


def test_evidence_that_tells_nothing_is_refused() -> None:
    good = agreeing(0.5, 0.2)
    fit_turns([good, agreeing(0.5, 0.2, correct=0.0)])
    nan = np.full((20, 12), np.nan)
    worthless = (agreeing(0.5, 0.2, correct=0.0), replace(good, large=nan), replace(good, correct=nan[:, 0]))
    for found in worthless:
        with pytest.raises(InputError, match="turns cannot be fitted"):
            fit_turns([found])


def test_evidence_of_a_picture_and_itself() -> None:
    image = AnnotatedImage(
        REPOSITORY / "examples" / "donkey.png",
        np.array([[60.0, 60.0], [120.0, 90.0], [90.0, 120.0], [140.0, 60.0]]),
    )
    model = load_model("hough-prior", changes={"image_size": (96, 96)})
    found = collect_turns([Pair("same", "donkey", image, image)], model)
    assert found.small.shape == found.large.shape == found.twist.shape == (1, len(TURNS))
    assert found.large[0].argmax() == 0
    assert abs(found.twist[0, 0]) < 1
    assert found.correct[0] > 0.5
