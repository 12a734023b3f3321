import math

import pytest
import torch
from torch import Tensor

from chmnet.config import TransferConfig
from chmnet.errors import InputError
from chmnet.training import keypoint_loss
from chmnet.training.objective import match_loss

KINDS = ["distance", "squared-distance"]


def case() -> tuple[Tensor, Tensor, Tensor]:
    """Two pairs: one with distances 5 and 1, one with 13 and padding."""
    truth = torch.tensor([[[1.0, 1.0], [0.0, 0.0]], [[-2.0, 3.0], [9.0, 9.0]]])
    difference = torch.tensor([[[3.0, 4.0], [0.0, -1.0]], [[-5.0, 12.0], [7.0, 7.0]]])
    return truth + difference, truth, torch.tensor([[True, True], [True, False]])


@pytest.mark.parametrize(
    ("kind", "expected"),
    [("distance", ((5 + 1) / 2 + 13) / 2), ("squared-distance", ((25 + 1) / 2 + 169) / 2)],
)
def test_loss_by_hand(kind: str, expected: float) -> None:
    assert keypoint_loss(*case(), kind).item() == pytest.approx(expected)


def test_distance_is_the_default() -> None:
    assert torch.equal(keypoint_loss(*case()), keypoint_loss(*case(), "distance"))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("padding", [math.nan, math.inf, 1e30], ids=str)
def test_padding_counts_for_nothing(kind: str, padding: float) -> None:
    expected = keypoint_loss(*case(), kind)
    predicted, truth, mask = case()
    predicted[~mask] = padding
    truth[~mask] = padding
    predicted.requires_grad_()
    loss = keypoint_loss(predicted, truth, mask, kind)
    torch.testing.assert_close(loss, expected)
    loss.backward()
    assert predicted.grad.isfinite().all()
    assert (predicted.grad[~mask] == 0).all()
    assert (predicted.grad[mask].abs().amax(-1) > 0).all()


def test_gradient_of_the_distance_by_hand() -> None:
    """A unit vector away from the truth, divided by the numbers of keypoints and pairs."""
    predicted, truth, mask = case()
    predicted.requires_grad_()
    keypoint_loss(predicted, truth, mask, "distance").backward()
    expected = torch.tensor([[[0.15, 0.2], [0.0, -0.25]], [[-5 / 26, 12 / 26], [0.0, 0.0]]])
    torch.testing.assert_close(predicted.grad, expected)


@pytest.mark.parametrize("kind", KINDS)
def test_no_distance(kind: str) -> None:
    predicted = torch.ones(1, 2, 2, requires_grad=True)
    loss = keypoint_loss(predicted, torch.ones(1, 2, 2), torch.ones(1, 2, dtype=torch.bool), kind)
    loss.backward()
    assert loss.item() == 0
    assert torch.equal(predicted.grad, torch.zeros(1, 2, 2))


@pytest.mark.parametrize("kind", KINDS)
def test_pair_without_keypoints_counts_as_zero(kind: str) -> None:
    predicted, truth, mask = case()
    mask[1] = False
    predicted.requires_grad_()
    loss = keypoint_loss(predicted, truth, mask, kind)
    loss.backward()
    assert loss.item() == pytest.approx({"distance": 1.5, "squared-distance": 6.5}[kind])
    assert (predicted.grad[1] == 0).all()


def test_unknown_kind() -> None:
    with pytest.raises(InputError, match="kind must be distance or squared-distance, got 'cubed'"):
        keypoint_loss(*case(), "cubed")


NEAREST = TransferConfig(sampler="nearest", temperature=0.5)


def test_match_loss_by_hand() -> None:
    """Two grid points in a row: scores 1 and 2 for the left one, whose match lies a quarter of the way."""
    scores = torch.tensor([[1.0, 2.0], [0.0, 0.0]]).view(1, 1, 1, 2, 1, 2)
    left, quarter = torch.tensor([[[-1.0, 0.0]]]), torch.tensor([[[-0.5, 0.0]]])
    total = math.exp(2) + math.exp(4)
    expected = -(0.75 * math.log(math.exp(2) / total) + 0.25 * math.log(math.exp(4) / total))
    mask = torch.ones(1, 1, dtype=torch.bool)
    assert match_loss(scores, left, quarter, mask, NEAREST).item() == pytest.approx(expected)
    warm = match_loss(scores, left, quarter, mask, NEAREST, temperature=1e6).item()
    assert warm == pytest.approx(math.log(2), abs=1e-5)


def test_match_loss_leaves_padding_out() -> None:
    scores = torch.rand(2, 1, 3, 3, 3, 3, requires_grad=True)
    points = torch.zeros(2, 2, 2)
    truth = points.clone()
    truth[:, 1] = torch.nan
    mask = torch.tensor([[True, False], [False, False]])
    loss = match_loss(scores, points, truth, mask)
    torch.testing.assert_close(loss, match_loss(scores[:1], points[:1, :1], truth[:1, :1], mask[:1, :1]) / 2)
    (gradient,) = torch.autograd.grad(loss, scores)
    assert gradient.isfinite().all()
    assert gradient[1].abs().max() == 0
