"""Fit the network that sees which way things face to pictures with named keypoints."""

from collections.abc import Callable, Iterable, Sequence

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from chmnet.data.making_pairs import Instance
from chmnet.data.pairs import mirrored_rows, name_words
from chmnet.errors import InputError
from chmnet.matcher import choose_device
from chmnet.nn.chmnet import CHMNet
from chmnet.nn.facing import Facing
from chmnet.nn.inference import for_inference
from chmnet.pictures import Picture, View

FRONT = {"front", "f", "nose", "beak", "eye", "throat", "headlight", "handle"}
BACK = {"back", "b", "tail", "tailbase", "taillight", "rudder", "stabilizer", "seatbase"}
"""Words in names of keypoints that lie at the front and at the back of a thing."""
LEAST_PICTURES = 50
LEAST_SHARE = 0.04
"""Of the picture that the thing must cover."""
RIVAL_SHARE = 0.4
"""Another thing that covers more than this share of the largest one's box must face the same way."""
WIDTH = 96
_BATCH, _STEPS, _RATE, _DECAY = 40, 1500, 2e-3, 0.05
_LEAST_WINDOW = 9


def fit_facing(
    model: CHMNet,
    instances: Sequence[Instance],
    track: Callable[[Sequence[str]], Iterable[str]] = iter,
    device: str = "auto",
    steps: int = _STEPS,
) -> Facing:
    """Fit a small network to features of pictures and of their mirror images.

    The same pictures give the same numbers, on one machine with one number of threads.

    Args:
        model: whose features are looked at.
        instances: annotated things, in pictures that the model is not tested on.
        track: wraps the pictures, for a progress bar.
        device: where features are computed.
        steps: of the optimiser.

    Raises:
        InputError: there are too few pictures that say which way their thing faces, or one cannot be read.
    """
    labels = label_pictures(instances)
    if len(labels) < LEAST_PICTURES:
        raise InputError(
            f"{len(labels)} pictures say which way their thing faces; at least {LEAST_PICTURES} are needed "
            "(names of keypoints with words such as front, back, nose, tail, left, right)"
        )
    chosen = choose_device(device)
    network = for_inference(model).to(chosen)
    size, kept = model.config.image_size, []
    for path in track(list(labels)):
        picture = Picture(path)
        views = View(picture), View(picture, mirrored=True)
        with torch.inference_mode():
            images = torch.stack([view.tensor(size) for view in views]).to(chosen)
            level = network.head.pyramid(network.features(images)).levels[network.head.nearest]
            kept.append(level.half().cpu())
        picture.forget()
    probe = Facing(model.head.width, WIDTH)
    torch.manual_seed(0)
    for layer in (probe.reduce, probe.surround, probe.answer):
        layer.reset_parameters()
    truth = torch.tensor([labels[path][:2] for path in labels], dtype=torch.float32)
    counts = [sum(other[2] == each[2] for other in labels.values()) for each in labels.values()]
    return _fit(probe, torch.stack(kept), truth, torch.tensor(counts).float().rsqrt(), steps)


def label_pictures(instances: Sequence[Instance]) -> dict[str, tuple[float, float, str]]:
    """Path → which way the largest thing of the picture faces, and its category; NaN where nobody knows."""
    by_path: dict[str, list[Instance]] = {}
    for instance in instances:
        if instance.box is not None:
            by_path.setdefault(str(instance.path), []).append(instance)
    labels = {}
    for path in sorted(by_path):
        things = sorted(by_path[path], key=_area, reverse=True)
        height, width = things[0].size or Picture(path).size
        across, along = label_instance(things[0])
        rivals = [thing for thing in things[1:] if _area(thing) > RIVAL_SHARE * _area(things[0])]
        facing = [label_instance(each) for each in rivals]
        clear = all(np.allclose(each, (across, along), atol=0.5, equal_nan=True) for each in facing)
        if _area(things[0]) >= LEAST_SHARE * height * width and clear and np.isfinite([across, along]).any():
            labels[path] = across, along, things[0].category
    return labels


def label_instance(instance: Instance) -> tuple[float, float]:
    """Which way a thing faces, by its keypoints, as :class:`chmnet.nn.facing.Facing` says it; NaN: nobody knows.

    Example:
        >>> from pathlib import Path
        >>> names, places = ("nose", "tail_base"), np.array([[10.0, 5.0], [50.0, 5.0]])
        >>> label_instance(Instance("1", "cat", Path("1.jpg"), places, names, box=(0, 0, 60, 20)))
        (-0.8333333333333334, 0.0)
    """
    assert instance.box is not None, "label_pictures takes those with boxes"
    x, width = instance.keypoints[:, 0], max(1.0, instance.box[2] - instance.box[0])
    words = [set(name_words(name)) for name in instance.keypoint_names]
    seen = np.isfinite(x)
    front = [row for row, name in enumerate(words) if seen[row] and name & FRONT]
    back = [row for row, name in enumerate(words) if seen[row] and name & BACK]
    across = np.nan
    if not any(name & (FRONT | BACK) for name in words):
        across = 0.0  # a thing without front and back
    elif front and back:
        across = float(np.clip((x[front].mean() - x[back].mean()) / (0.8 * width), -1, 1))
    other = mirrored_rows(instance.keypoint_names)
    sides = [
        x[there] - x[row]
        for row, there in enumerate(other)
        if there is not None and there != row and words[row] & {"left", "l"} and seen[row] and seen[there]
    ]
    along = float(np.clip(np.mean(sides) / (0.5 * width), -1, 1)) if sides else np.nan
    if not sides and abs(across) > 0.6:
        along = 0.0  # seen from the side: left and right lie behind each other
    return across, along


def _area(instance: Instance) -> float:
    assert instance.box is not None, "label_pictures takes those with boxes"
    left, top, right, bottom = instance.box
    return (right - left) * (bottom - top)


def _fit(
    probe: Facing,
    features: Float[Tensor, "n 2 c h w"],
    truth: Float[Tensor, "n 2"],
    weights: Float[Tensor, " n"],
    steps: int,
) -> Facing:
    """Least squares with windows cut at random, so that it does not matter where in the picture the thing is."""
    known, truth = truth.isfinite().float(), truth.nan_to_num()
    mirror_truth = truth * torch.tensor([-1.0, 1.0])
    probe.requires_grad_(True).train()
    optimiser = torch.optim.AdamW(probe.parameters(), lr=_RATE, weight_decay=_DECAY)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimiser, _RATE, total_steps=steps)
    generator = np.random.default_rng(0)
    side = min(features.shape[-2:])
    for _ in range(steps):
        rows = torch.multinomial(weights, _BATCH, replacement=True)
        window = int(generator.integers(min(_LEAST_WINDOW, side), side + 1))
        top = int(generator.integers(0, features.shape[-2] - window + 1))
        left = int(generator.integers(0, features.shape[-1] - window + 1))
        right = features.shape[-1] - window - left  # the same window of the mirror image
        batch = features[rows].float()
        seen = batch[:, 0, :, top : top + window, left : left + window]
        mirror = batch[:, 1, :, top : top + window, right : right + window]
        errors = (probe(seen) - truth[rows]).square() + (probe(mirror) - mirror_truth[rows]).square()
        loss = (errors * known[rows]).sum() / known[rows].sum().clamp(min=1)
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        schedule.step()
    return probe.requires_grad_(False).eval()
