"""Batches: padding, shares, features that are computed once."""

import numpy as np
import pytest
import torch
from torch import Tensor

from chmnet.features import FeatureCache
from chmnet.nn.chmnet import CHMNet
from chmnet.training.batches import Batches, pad_points
from chmnet.training.datasets import epoch_plan, open_sources
from tests.training.tiny import tiny_config


def make_batches(cache: FeatureCache[Tensor] | None, *changes: str) -> Batches:
    config = tiny_config(*changes)
    return Batches(open_sources(config.data, None, 0), CHMNet(config.model).eval(), cache, seed=0)


def test_padding() -> None:
    points = [np.full((number, 2), float(number)) for number in (3, 0, 1)]
    padded, mask = pad_points(points)
    assert padded.shape == (3, 3, 2)
    assert mask.sum(-1).tolist() == [3, 0, 1]
    torch.testing.assert_close(padded[0], torch.full((3, 2), 3.0))
    assert (padded[~mask] == 0).all()


def test_each_view_goes_through_the_backbone_once() -> None:
    with FeatureCache(10**9, dtype=torch.float16) as cache:
        batches = make_batches(cache)
        plan = epoch_plan(batches.sources, 0, 0)
        for epoch in range(3):
            for batch in batches.parts(plan, epoch, 4, parts=1, part=0):
                assert batch.source.shape == (4, batches.model.backbone.channels, 3, 3)
        views = {(number, index) for number, index in plan}
        assert 0 < cache.computed <= 2 * len(views)


def test_cached_features_are_those_of_the_images() -> None:
    with FeatureCache(10**9, dtype=torch.float32) as cache:
        cached, plain = make_batches(cache), make_batches(None)
        cached.model.load_state_dict(plain.model.state_dict())
        plan = epoch_plan(plain.sources, 0, 0)
        features, images = (next(iter(made.parts(plan, 0, 4, 1, 0))) for made in (cached, plain))
        assert images.source.shape == (4, 3, 48, 48)
        torch.testing.assert_close(features.source, plain.model.features(images.source), rtol=1e-4, atol=1e-4)
        torch.testing.assert_close(features.target_points, images.target_points)


def test_separate_branches_have_features_of_their_own() -> None:
    with FeatureCache(10**9, dtype=torch.float16) as cache:
        batches = make_batches(cache, "model.backbone.branches=separate")
        pair = batches.sources[0].pair(0, np.random.default_rng(0))
        batches.batch([pair, pair.exchanged()])
        assert cache.computed == 4


@pytest.mark.parametrize("parts", [1, 2, 4])
def test_shares_make_up_the_batch(parts: int) -> None:
    batches = make_batches(None)
    plan = epoch_plan(batches.sources, 0, 0)
    whole = list(batches.parts(plan, 0, 4, 1, 0))
    shares = [list(batches.parts(plan, 0, 4, parts, part)) for part in range(parts)]
    assert {len(share) for share in shares} == {len(whole)} == {2}
    for number, batch in enumerate(whole):
        rows = [share[number].source for share in shares]
        torch.testing.assert_close(torch.stack(rows, dim=1).flatten(0, 1), batch.source)


def test_later_batches_do_not_depend_on_where_one_starts() -> None:
    batches = make_batches(None)
    plan = epoch_plan(batches.sources, 0, 0)
    from_start, later = list(batches.parts(plan, 3, 4, 1, 0)), list(batches.parts(plan, 3, 4, 1, 0, first=1))
    torch.testing.assert_close(from_start[1].source_points, later[0].source_points)


def test_incomplete_batch_is_left_out_in_training_only() -> None:
    batches = make_batches(None)
    plan = epoch_plan(batches.sources, 0, 0)
    assert [len(batch.mask) for batch in batches.parts(plan, 0, 3, 1, 0)] == [3, 3]
    assert [len(batch.mask) for batch in batches.parts(plan, 0, 3, 1, 0, whole=False)] == [3, 3, 2]
