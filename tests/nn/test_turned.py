"""Turned targets: exact where the grid is, and positions of all turns mean the same."""

import pytest
import torch
from torch import Tensor

from chmnet.config import BackboneConfig, ModelConfig
from chmnet.errors import ConfigError, InputError
from chmnet.nn import CHMNet, MatchingHead, for_inference, tap_groups
from chmnet.nn.turned import TurningVote, turned, turned_images, turned_target, with_neighbours
from chmnet.ops import conv_nd

QUARTERS = (0.0, 90.0, 180.0, 270.0)


def head(rotations: tuple[float, ...], window: int = 1, scales: tuple[float, ...] = (1.0,)) -> MatchingHead:
    torch.manual_seed(0)
    settings = {"rotations": list(rotations), "scales": list(scales), "reduction": 0}
    changed = ModelConfig.preset("paper", correlation=settings, matching={"rotation_window": window})
    return MatchingHead(changed, in_channels=4)


def features(seed: int, side: int = 5) -> Tensor:
    return torch.rand(2, 4, side, side, generator=torch.Generator().manual_seed(seed))


def test_a_quarter_turn_is_counter_clockwise() -> None:
    plane = torch.zeros(1, 1, 3, 3)
    plane[0, 0, 0, 1] = 1  # at the top
    assert turned(plane, 90)[0, 0, 1, 0] == 1  # on the left
    torch.testing.assert_close(turned(plane, 89.999), turned(plane, 90), atol=1e-3, rtol=0)
    assert torch.equal(turned(turned(plane, 90), -90), plane)


def test_what_a_turn_does_not_reach_is_neutral() -> None:
    image = torch.full((1, 3, 8, 8), 0.4)
    torch.testing.assert_close(turned_images(image, 45), image)
    assert turned_images(image, 360) is image
    scores = torch.rand(1, 1, 2, 2, 9, 9) - 2
    assert turned_target(scores, 45)[0, 0, 0, 0, 0, 0] == scores.min()
    assert torch.equal(turned_target(scores, 180), scores.flip(-2, -1))


def test_one_upright_turn_is_the_network_without() -> None:
    one, other = head((0.0,)), head(QUARTERS)
    assert one.state_dict().keys() == other.state_dict().keys()
    source, target = features(0), features(1)
    views = torch.cat([target] * 4, 1)
    torch.testing.assert_close(one(source, target).shape, other(source, views).shape)


@pytest.mark.parametrize("quarters", [1, 2, 3])
@pytest.mark.parametrize("window", [1, 3])
def test_scores_turn_with_the_target(quarters: int, window: int) -> None:
    """All quarter turns are tried: turning the target permutes its views, and turns the scores."""
    network = head(QUARTERS, window)
    source, target = features(0), features(1)

    def views(plane: Tensor) -> Tensor:
        return torch.cat([turned(plane, degrees) for degrees in QUARTERS], 1)

    upright = network(source, views(target))
    moved = network(source, views(turned(target, 90 * quarters)))
    torch.testing.assert_close(moved, turned_target(upright, 90 * quarters))


def test_each_match_has_the_score_of_its_best_turn() -> None:
    network, plain = head(QUARTERS), head((0.0,))
    plain.load_state_dict(network.state_dict())
    source, target = features(0), features(1)
    planes = [turned(target, degrees) for degrees in QUARTERS]
    alone = [
        turned_target(plain(source, plane), -degrees) for plane, degrees in zip(planes, QUARTERS, strict=True)
    ]
    torch.testing.assert_close(network(source, torch.cat(planes, 1)), torch.stack(alone).amax(0))


def test_neighbours_are_turned_into_the_frame_of_a_turn() -> None:
    """One thing seen in all four turns: in the frame of any of them all correlations are equal."""
    whole = torch.rand(1, 1, 2, 2, 5, 5, generator=torch.Generator().manual_seed(0))
    seen = [turned_target(whole, degrees) for degrees in QUARTERS]
    for number in range(4):
        channels = with_neighbours(seen, QUARTERS, number, 3)
        for channel in channels.unbind(1):
            torch.testing.assert_close(channel, seen[number][:, 0])


def test_turns_without_neighbours_hear_nothing_of_them() -> None:
    seen = [torch.rand(1, 1, 2, 2, 3, 3) for _ in range(3)]
    turns = (0.0, 90.0, 270.0)  # 180 is missing
    channels = with_neighbours(seen, turns, 1, 3)
    assert torch.equal(channels[:, 2], torch.zeros_like(channels[:, 2]))
    torch.testing.assert_close(channels[:, :1], turned_target(seen[0], 90))
    assert with_neighbours(seen, turns, 1, 1) is seen[1]


@pytest.mark.parametrize("scale", [None, 3])
def test_the_vote_over_turns_is_the_middle_of_one_over_all_axes(scale: int | None) -> None:
    layer = TurningVote(3, scale, "psi", rotation=3)
    torch.nn.init.normal_(layer.weight)
    leading = () if scale is None else (3, 3)
    channels = torch.rand(1, 3, *leading, 3, 3, 4, 3)
    dense = (layer.weight / layer.count)[..., layer.index]
    axis = 2 + len(leading)
    whole = channels.movedim(1, axis - 1).unsqueeze(1).unsqueeze(axis)
    votes = conv_nd(whole, dense, layer.bias).select(axis, 0).select(axis, 1)
    torch.testing.assert_close(layer(channels), votes)


def test_turns_of_the_target_alone_share_weights_by_their_distance() -> None:
    groups = tap_groups(5, 3, "psi", rotation=(1, 3))
    assert list(groups.index.shape) == [3, 3, 1, 3, 5, 5, 5, 5]
    assert groups.number == 2 * tap_groups(5, 3, "psi").number
    assert torch.equal(groups.index[:, :, 0, 0], groups.index[:, :, 0, 2])
    assert torch.equal(tap_groups(3, rotation=(3, 3)).index, tap_groups(3, rotation=3).index)


@pytest.mark.parametrize(("window", "scales"), [(1, (1.0,)), (3, (1.0,)), (3, (0.7, 1.0))])
def test_made_ready_for_inference(window: int, scales: tuple[float, ...]) -> None:
    torch.manual_seed(0)
    correlation = {"rotations": [0.0, 40.0, 90.0, -40.0], "scales": list(scales)}
    model = CHMNet(
        ModelConfig.preset(
            "paper",
            backbone=BackboneConfig("resnet18"),
            correlation=correlation,
            matching={"rotation_window": window},
        )
    ).eval()
    pair = torch.rand(2, 1, 3, 64, 64, generator=torch.Generator().manual_seed(0)).unbind()
    ready = for_inference(model)
    with torch.inference_mode():
        assert model.features(pair[1], "target").shape[1] == 4 * model.features(pair[0]).shape[1]
        torch.testing.assert_close(ready(*pair), model(*pair), rtol=1e-4, atol=1e-6)


def test_features_of_a_source_are_no_target() -> None:
    with pytest.raises(InputError, match="1 turned views, not of 4"):
        head(QUARTERS)(features(0), features(1))


@pytest.mark.parametrize(
    ("rotations", "words"),
    [([90.0], "first of them 0"), ([], "1 to 36"), ([0.0, 360.0], "differ"), ([0.0, 400.0], "rotations")],
)
def test_rotations_that_make_no_sense(rotations: list[float], words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        ModelConfig.preset("paper", correlation={"rotations": rotations})


def test_a_fine_branch_sees_no_turned_targets() -> None:
    with pytest.raises(ConfigError, match="no turned targets"):
        ModelConfig.preset("paper", correlation={"rotations": [0.0, 90.0]}, fine={"layers": ["layer2"]})
