import pytest
import torch
import torch.nn.functional as F

from chmnet.ops.correlation import project_enlarged, ready_to_project, resize_features


@pytest.mark.parametrize("taps", [(3, 3), (1, 5), (7, 7), (1, 1)], ids=str)
@pytest.mark.parametrize(("size", "larger"), [((3, 4), (5, 6)), ((1, 1), (2, 1)), ((2, 5), (2, 7))], ids=str)
def test_projection_of_enlarged_features(
    taps: tuple[int, int], size: tuple[int, int], larger: tuple[int, int]
) -> None:
    features = torch.rand(2, 6, *size, dtype=torch.float64)
    weight = torch.rand(4, 6, *taps, dtype=torch.float64)
    expected = F.conv2d(resize_features(features, larger), weight, padding=[k // 2 for k in taps])
    torch.testing.assert_close(project_enlarged(features, weight, larger), expected)
    torch.testing.assert_close(project_enlarged(features, ready_to_project(weight), larger), expected)


def test_a_weight_ready_to_project_is_the_same_weight() -> None:
    weight = torch.rand(4, 6, 3, 3)
    assert torch.equal(ready_to_project(weight), weight)
