"""Make the drawings of README.md and of docs: ``make docs``, or ``python tools/pictures.py FOLDER``.

The photographs are those of ``examples``; everything is drawn with the models that come with the package.
"""

import sys
from pathlib import Path

import matplotlib
import numpy as np
import torch
import torch.nn.functional as F
from matplotlib.figure import Figure
from PIL import Image

from chmnet import Matcher, MatchResult, TransferConfig, load_model
from chmnet.cli.main import app
from chmnet.config import CorrelationConfig
from chmnet.data.examples import PAIRS
from chmnet.metrics import hits
from chmnet.nn import HoughMatching
from chmnet.nn.chmnet import Pyramid
from chmnet.ops import conv_nd
from chmnet.ops.transfer import match_probabilities
from chmnet.pictures import to_picture
from chmnet.viz import (
    blend,
    contact_sheet,
    draw_confidence,
    draw_errors,
    draw_heat,
    draw_kernels,
    draw_keypoints,
    draw_matches,
    draw_top_matches,
    draw_warp,
)
from chmnet.viz.canvas import COLOURS
from chmnet.viz.kernels import titled_kernels

EXAMPLES = Path(__file__).resolve().parent.parent / "examples"

SHOWN = [PAIRS[number] for number in (0, 3, 5, 2)]
"""The pairs at the top of README.md."""

WITHERS = np.array([85.0, 44.0])
"""The point of the donkey whose votes are shown."""


def main(folder: Path) -> None:
    """Make all of them."""
    matcher = Matcher()
    donkey = matcher.match(EXAMPLES / "donkey.png", EXAMPLES / "zebra.png")
    drawings = {
        "matches.jpg": shown_pairs(matcher),
        "warp.jpg": shown_warp(donkey),
        "looks.jpg": looks(donkey),
        "errors.jpg": best_to_worst(matcher),
        "poses.jpg": tried_poses(),
        "place.jpg": found_place(),
        "instances.jpg": several_things(matcher),
        "propagate.jpg": propagated(folder),
        "kernels.png": kernels(),
        "votes.jpg": votes(donkey),
        "kernel-6d.png": kernel_over_scales(),
        "sharing.png": sharing(),
        "voting.png": voting_on_lines(),
        "taps.png": taps(),
        "soft-argmax.png": soft_argmax_on_a_line(),
    }
    for name, drawing in drawings.items():
        if isinstance(drawing, Figure):
            drawing.savefig(folder / name, dpi=110)
        else:
            drawing.save(folder / name, **({"quality": 88} if name.endswith("jpg") else {"optimize": True}))


def shown_pairs(matcher: Matcher) -> Image.Image:
    """The picture at the top of README.md."""
    drawn = []
    for pair in SHOWN:
        result = matcher.match(EXAMPLES / pair.source, EXAMPLES / pair.target)
        found = result.transfer(pair.points)
        drawn.append(draw_matches(*both(result), found.source, found.target, 380, found.confidence))
    return contact_sheet(drawn, columns=2, side=None)


def shown_warp(result: MatchResult) -> Image.Image:
    """Source, warp, target, and the last two together."""
    source, target = both(result)
    return draw_warp(source, result.warp(), target, side=300)


def looks(result: MatchResult) -> Image.Image:
    """The most confident matches, one point, the confidence, the warp."""
    source, target = both(result)
    best = result.matches(top=300)
    found = result.transfer(WITHERS)
    drawn = [
        draw_top_matches(source, target, best.source, best.target, side=300),
        draw_heat(source, target, WITHERS, result.heat(WITHERS), found.target[0], side=300),
        draw_confidence(source, result.confidence, side=300),
        blend(result.warp(), target).resize((300, 225)),
    ]
    captions = [
        "the 300 most confident matches",
        "where one point may lie",
        "confidence of every part of the donkey",
        "the donkey warped onto the zebra, and blended with it",
    ]
    return contact_sheet(drawn, captions, columns=2, side=None)


def best_to_worst(matcher: Matcher) -> Image.Image:
    """Every example pair with points that a person marked in both pictures, the best pair first."""
    drawn = []
    for pair in PAIRS:
        result = matcher.match(EXAMPLES / pair.source, EXAMPLES / pair.target)
        both_show = [(point, there) for point, there in zip(pair.points, pair.targets, strict=True) if there]
        points, truth = (np.array(side, dtype=float) for side in zip(*both_show, strict=True))
        found = result.locate(points)
        errors = np.linalg.norm(found - truth, axis=1) / max(result.target_size)
        caption = f"{hits(errors, 0.05).sum()} and {hits(errors, 0.1).sum()} of {len(errors)}"
        drawn.append((errors.mean(), draw_errors(*both(result), points, found, truth), caption))
    drawn.sort(key=lambda row: row[0])
    return contact_sheet([row[1] for row in drawn], [row[2] for row in drawn], columns=2, side=None)


def tried_poses() -> Image.Image:
    """The donkey and a horse that looks the other way, and the donkey and a zebra that is turned."""
    horse = to_picture(EXAMPLES / "pairs/horse.png")
    zebra = to_picture(EXAMPLES / "zebra.png").rotate(90, expand=True)
    drawn, captions = [], []
    for target, poses in ((horse, "upright"), (horse, "mirror"), (zebra, "mirror"), (zebra, "any")):
        result = Matcher(poses=poses).match(EXAMPLES / "donkey.png", target)
        found = result.transfer(PAIRS[0].points)
        drawn.append(draw_matches(*both(result), found.source, found.target, 300, found.confidence))
        captions.append(f'poses="{poses}"')
    return contact_sheet(drawn, captions, columns=2, side=None)


def found_place() -> Image.Image:
    """The donkey in a picture that shows the zebra at a third of its size: all of it matched, and where it is."""
    canvas = Image.open(EXAMPLES / "sedan.png").convert("RGB").resize((480, 360))
    canvas.paste(Image.open(EXAMPLES / "zebra.png").convert("RGB").resize((160, 120)), (48, 198))
    matcher = Matcher(poses="upright")
    drawn = []
    for place in ("whole", "found"):
        result = matcher.match(EXAMPLES / "donkey.png", canvas, place=place)
        found = result.transfer(PAIRS[0].points)
        drawn.append(draw_matches(*both(result), found.source, found.target, 380, found.confidence))
    return contact_sheet(drawn, ['place="whole"', 'place="found"'], columns=1, side=None)


def several_things(matcher: Matcher) -> Image.Image:
    """The donkey in a picture of three animals: one match for each point, and one on each animal."""
    canvas = Image.new("RGB", (480, 380), "white")
    for name, place in (("zebra.png", (15, 15)), ("donkey.png", (265, 10)), ("pairs/gnu.png", (130, 200))):
        animal = Image.open(EXAMPLES / name).convert("RGBA")
        animal = animal.resize((205, round(205 * animal.height / animal.width)))
        canvas.paste(animal, place, animal)
    result = matcher.match(EXAMPLES / "donkey.png", canvas)
    one = result.transfer(PAIRS[0].points)
    drawn = [draw_matches(*both(result), one.source, one.target, 400, one.confidence)]
    found = [each.transfer(PAIRS[0].points) for each in result.instances(3)]
    source, target, confidence = (np.concatenate(columns) for columns in zip(*found, strict=True))
    count = len(PAIRS[0].points)
    labels = [str(number + 1) for number in range(count)] * len(found)
    groups = [group for group in range(len(found)) for _ in range(count)]
    drawn.append(draw_matches(*both(result), source, target, 400, confidence, labels=labels, groups=groups))
    captions = ["result.transfer(points)", "each.transfer(points) for each in result.instances(3)"]
    return contact_sheet(drawn, captions, columns=1, side=None)


def propagated(folder: Path) -> Image.Image:
    """What ``chmnet propagate`` draws: keypoints of the donkey in five other pictures."""
    sheet, output = folder / "propagate.png", folder / "propagate.json"
    names = ("zebra.png", "pairs/gnu.png", "pairs/young-gnu.png", "pairs/dromedary.png", "pairs/camel.png")
    targets = [str(EXAMPLES / name) for name in names]
    command = ["propagate", str(EXAMPLES / "donkey.json"), *targets, "-o", str(output)]
    app([*command, "--contact-sheet", str(sheet), "--overwrite"], standalone_mode=False)
    with Image.open(sheet) as opened:
        drawn = opened.convert("RGB")
    sheet.unlink()
    output.unlink()
    return drawn


def kernels() -> Image.Image:
    """The two layers of the default model."""
    head = load_model("chmnet-lite").head
    return draw_kernels(titled_kernels("chmnet-lite", head.first, head.last))


def votes(result: MatchResult) -> Image.Image:
    """The scores of one point of the donkey on the zebra: before any vote, after the first, after the last."""
    source, target = both(result)
    matcher = Matcher("chmnet-lite", "cpu")
    head = matcher.model.head
    features = matcher.extract(source), matcher.extract(target, "target")
    pyramids = [Pyramid(list(one.levels), one.grid) for one in features]
    with torch.inference_mode():
        correlation = head.correlate(*pyramids)
        first = head.vote_over_scales(correlation)[0, 0]
        last = head.match(*pyramids)[0][0, 0]
    maps = []
    for scores in (correlation[0, 0, 0, 0], first, last):
        shares = WITHERS / np.array(source.size)
        row, column = (
            round(share * (length - 1)) for share, length in zip(shares[::-1], scores.shape, strict=False)
        )
        maps.append(scores[row, column].numpy())
    drawn = [draw_keypoints(source, WITHERS[None], side=300)]
    drawn += [draw_confidence(target, one / one.max(), side=300, words="score, largest = 1") for one in maps]
    captions = [
        "a point of the donkey",
        "correlation: what looks like it",
        "after the first vote (15 × 15 cells)",
        "after the last vote (30 × 30 cells)",
    ]
    return contact_sheet(drawn, captions, columns=4, side=None)


def kernel_over_scales() -> Image.Image:
    """A 6D kernel: the Hough prior's, which is fixed and not learned."""
    first = load_model("hough-prior", changes={"correlation": {"scales": CorrelationConfig().scales}}).head.first
    return draw_kernels([("hough-prior with three scales, first vote", first.kernel()[0, 0].detach().numpy())])


def sharing() -> Image.Image:
    """The three ways to share weights, with weights that only tell the groups apart."""
    titled = []
    for name, words in (("full", "none is shared"), ("psi", "offset and distances"), ("iso", "offset only")):
        layer = HoughMatching(spatial=5, sharing=name)
        count = layer.groups.number
        shades = torch.from_numpy(np.random.default_rng(0).permutation(count) / count)
        titled.append((f"{name}: {count} weights for 625 taps ({words})", shades[layer.groups.index].numpy()))
    return draw_kernels(titled)


def voting_on_lines() -> Figure:
    """Hough voting where it can be seen whole: pictures of one dimension have a correlation of two."""
    generator = torch.Generator().manual_seed(3)
    length, moved = 24, 4
    target = torch.randn(length, 12, generator=generator)
    source = torch.randn(length, 12, generator=generator)
    noise = torch.randn(length, 12, generator=generator)
    source[: length - moved] = target[moved:] + 1.1 * noise[moved:]
    scores = F.cosine_similarity(source[:, None], target[None], dim=-1).relu()
    steps = torch.arange(-2, 3)
    kernel = torch.exp(-((steps[:, None] - steps[None]) ** 2) / 0.5)
    voted = conv_nd(scores[None, None], kernel[None, None] / kernel.sum())[0, 0]
    figure = Figure(figsize=(11, 4.1), layout="constrained")
    for axes, values, title in zip(
        figure.subplots(1, 3, width_ratios=(3, 1.6, 3)),
        (scores, kernel, voted),
        ("correlation: how alike two cells look", "kernel: who votes", "after the vote"),
        strict=True,
    ):
        axes.imshow(values.numpy(), cmap="viridis")
        axes.set_title(title, fontsize=11)
        side = len(values)
        ticks = [0, side - 1] if side == length else range(side)
        axes.set_xticks(ticks, [str(tick - 2) if side == 5 else str(tick + 1) for tick in ticks])
        axes.set_yticks(ticks, [str(tick - 2) if side == 5 else str(tick + 1) for tick in ticks])
        axes.set_xlabel("p′ − x′" if side == 5 else "cell of the target")
        axes.set_ylabel("p − x" if side == 5 else "cell of the source")
        if side == length:
            ends = np.array([0, length - 1 - moved])
            for shift in (-0.9, 0.9):
                axes.plot(ends + moved + shift, ends - shift, color="white", linewidth=1, linestyle="--")
            axes.set(xlim=(-0.5, length - 0.5), ylim=(length - 0.5, -0.5))
    return figure


def taps() -> Figure:
    """What one weight of the kernel belongs to: a neighbour of the match, in both windows."""
    cases = (
        ("moves as the match does:\noffset 0", (1, -1), (1, -1)),
        ("moves one cell further right:\noffset 1", (1, -1), (2, -1)),
        ("moves quite differently:\noffset √13", (1, -1), (-2, 1)),
    )
    figure = Figure(figsize=(11, 2.8), layout="constrained")
    for group, (title, near, far) in zip(figure.subfigures(1, 3), cases, strict=True):
        group.suptitle(title, fontsize=11)
        for axes, place, names, window in zip(
            group.subplots(1, 2), (near, far), (("x", "p"), ("x′", "p′")), ("source", "target"), strict=True
        ):
            axes.set(xlim=(-2.5, 2.5), ylim=(2.5, -2.5), xticks=[], yticks=[], aspect="equal", title=window)
            for line in np.arange(-1.5, 2):
                axes.axhline(line, color="#cccccc", linewidth=0.8)
                axes.axvline(line, color="#cccccc", linewidth=0.8)
            axes.annotate("", place, (0, 0), arrowprops={"arrowstyle": "->", "color": "#555555", "shrinkB": 9})
            for point, name, colour in (((0, 0), names[0], COLOURS[0]), (place, names[1], COLOURS[1])):
                axes.plot(*point, "o", markersize=17, color=colour)
                axes.text(*point, name, color="white", ha="center", va="center", fontsize=11)
    return figure


def soft_argmax_on_a_line() -> Figure:
    """From scores to a position: the best cell, the mean of all, and the mean near the best."""
    cells = np.arange(30)
    scores = 6.0 * np.exp(-((cells - 8.4) ** 2) / 4) + 5.2 * np.exp(-((cells - 22) ** 2) / 6)
    sigma = 5.0
    tensor = torch.from_numpy(scores).view(1, 1, 1, 1, -1)
    plain, near = (
        match_probabilities(tensor, TransferConfig(gaussian_sigma=width)).flatten().numpy() for width in (0, sigma)
    )
    best = int(scores.argmax())
    figure = Figure(figsize=(11, 4.2), layout="constrained")
    left, right = figure.subplots(1, 2)
    left.bar(cells, scores, color="#cccccc", label="score C")
    bell = np.exp(-((cells - best) ** 2) / (2 * sigma**2))
    left.plot(cells, bell * scores.max(), color=COLOURS[4], label="Gaussian G around the best cell")
    left.plot(cells, bell * scores, color=COLOURS[0], linestyle="--", label="G · C")
    right.bar(cells - 0.2, plain, 0.4, color=COLOURS[1], label="softmax of C")
    right.bar(cells + 0.2, near, 0.4, color=COLOURS[0], label="softmax of G · C")
    for weights, colour, style, words in (
        (plain, COLOURS[1], ":", "mean: soft-argmax"),
        (near, COLOURS[0], "--", "mean: kernel soft-argmax"),
    ):
        right.axvline((weights * cells).sum(), color=colour, linestyle=style, label=words)
    for axes in (left, right):
        axes.set_xlabel("cell of the target")
        axes.legend(frameon=False, fontsize=9)
        axes.spines[["top", "right"]].set_visible(False)
    return figure


def both(result: MatchResult) -> tuple[Image.Image, Image.Image]:
    """The two pictures of a result."""
    assert result.source_picture is not None
    assert result.target_picture is not None
    return result.source_picture, result.target_picture


if __name__ == "__main__":
    matplotlib.use("agg")
    main(Path(sys.argv[1] if len(sys.argv) > 1 else "docs/images"))
