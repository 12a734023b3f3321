"""What a caller gets wrong is said in a sentence: never a crash inside, nor an answer that means nothing."""

from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

from chmnet import Matcher, MatchResult
from chmnet.errors import ChmnetError
from chmnet.formats import write_flo
from chmnet.weights import load_model

PICTURE = Image.radial_gradient("L").convert("RGB").resize((64, 48))
VALUES = torch.rand(3, 48, 64, generator=torch.Generator().manual_seed(0))


@cache
def matcher() -> Matcher:
    return Matcher(load_model("nearest-neighbour", changes={"image_size": [64, 64]}))


@cache
def result() -> MatchResult:
    return matcher().match(PICTURE, PICTURE)


WRONG: dict[str, Callable[[], Any]] = {
    "a meta tensor": lambda: matcher().match(torch.empty(3, 48, 64, device="meta"), PICTURE),
    "a sparse tensor": lambda: matcher().match(VALUES.to_sparse(), PICTURE),
    "a complex tensor": lambda: matcher().match(VALUES.to(torch.complex64), PICTURE),
    "NaN": lambda: matcher().match(VALUES * float("nan"), PICTURE),
    "no pixels": lambda: matcher().match(VALUES[:, :0], PICTURE),
    "no picture": lambda: matcher().match(None, PICTURE),  # type: ignore[arg-type]
    "a dictionary": lambda: matcher().match({}, PICTURE),  # type: ignore[arg-type]
    "no boxes": lambda: matcher().match(PICTURE, PICTURE, boxes=None),  # type: ignore[arg-type]
    "a box of three": lambda: matcher().match(PICTURE, PICTURE, boxes=((1, 2, 3), None)),  # type: ignore[arg-type]
    "a huge point": lambda: result().transfer([[10**400, 1]]),
    "a word": lambda: result().transfer([["a", 1]]),
    "an imaginary point": lambda: result().transfer([[1j, 1]]),
    "a meta point": lambda: result().transfer(torch.zeros(1, 2, device="meta")),  # type: ignore[arg-type]
    "rows of different lengths": lambda: result().transfer([[1, 2], [3]]),
    "infinity": lambda: result().locate([[float("inf"), 2]]),
    "half a match": lambda: result().matches(top=1.5),  # type: ignore[call-overload]
    "no matches": lambda: result().matches(top=0),
    "some matches": lambda: result().matches(top="a"),  # type: ignore[call-overload]
    "half a thing": lambda: result().instances(1.5),  # type: ignore[arg-type]
    "no model": lambda: load_model(None),  # type: ignore[arg-type]
    "a number for a model": lambda: load_model(3),  # type: ignore[arg-type]
    "an empty name": lambda: load_model(""),
    "no device": lambda: Matcher("nearest-neighbour", 3),  # type: ignore[arg-type]
    "memory in words": lambda: Matcher("nearest-neighbour", memory_mb="a"),  # type: ignore[arg-type]
    "less than no memory": lambda: Matcher("nearest-neighbour", memory_mb=-1),
    "no pairs": lambda: list(matcher().match_many([1, 2])),  # type: ignore[list-item]
    "a flow of three numbers": lambda: write_flo("never.flo", np.zeros((3, 3, 3))),
    "a flow in a row": lambda: write_flo("never.flo", np.zeros(3)),
    "a flow in words": lambda: write_flo("never.flo", "abc"),  # type: ignore[arg-type]
}


@pytest.mark.parametrize("call", WRONG.values(), ids=WRONG)
def test_wrong_arguments_are_one_sentence(
    call: Callable[[], Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises((ChmnetError, TypeError, ValueError)) as caught:
        call()
    assert len(str(caught.value)) > 10
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("dtype", [torch.float64, torch.float16, torch.bfloat16])
def test_networks_of_other_precision_match(dtype: torch.dtype) -> None:
    network = load_model("nearest-neighbour", changes={"image_size": [64, 64]}).to(dtype)
    points = [[20, 20], [40, 30]]
    found = Matcher(network).match(PICTURE, PICTURE).locate(points)
    assert np.abs(found - result().locate(points)).max() < 1


def test_more_matches_than_there_are_places_are_all() -> None:
    assert len(result().matches(top=10**30, background=True).source) == len(
        result().matches(top=10**5, background=True).source
    )


@pytest.mark.parametrize("value", [1e38, -1e38])
def test_finite_but_absurd_weights_give_no_answer(value: float) -> None:
    network = load_model("hough-prior", changes={"image_size": [64, 64]})
    with torch.no_grad():
        for parameter in network.parameters():
            parameter.fill_(value)
    with pytest.raises(ChmnetError, match="its weights are damaged"):
        Matcher(network, poses="upright").match(PICTURE, PICTURE)


@pytest.mark.parametrize("dtype", [torch.int64, torch.bool, torch.complex64])
def test_weights_of_other_kinds_are_refused(dtype: torch.dtype, tmp_path: Path) -> None:
    from safetensors import safe_open
    from safetensors.torch import save_file

    from chmnet.weights.models import MODELS

    with safe_open(MODELS["chmnet-lite"].path, framework="pt") as file:
        tensors, metadata = {name: file.get_tensor(name) for name in file.keys()}, file.metadata()  # noqa: SIM118
    name = next(name for name, tensor in tensors.items() if tensor.is_floating_point())
    tensors[name] = tensors[name].to(dtype)
    save_file(tensors, tmp_path / "other.safetensors", metadata)
    with pytest.raises(ChmnetError, match=r"is of type torch\.\w+, expected numbers like float32"):
        load_model(tmp_path / "other.safetensors")
