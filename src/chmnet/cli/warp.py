"""``chmnet warp``: draw one picture in the shape of another."""

from enum import Enum
from pathlib import Path
from typing import Annotated

from chmnet.cli import io
from chmnet.cli.points import check_box, parse_box


class Method(str, Enum):
    """How the source follows the matches."""

    flow = "flow"
    tps = "tps"


def warp(
    source: Annotated[Path, io.argument("SOURCE", "Picture to warp.")],
    target: Annotated[Path, io.argument("TARGET", "Picture whose shape it takes.")],
    output: Annotated[Path, io.option("FILE", "Write the warped picture here.", "--output", "-o")],
    method: Annotated[
        Method, io.option("NAME", "flow: each pixel follows its match; tps: one thin-plate spline.")
    ] = Method.flow,
    blend: Annotated[
        float, io.option("NUMBER", "Weight of the warped picture over the target.", min=0, max=1)
    ] = 1.0,
    animate: Annotated[
        Path | None, io.option("FILE", "Write a GIF that turns the target into the warped picture and back.")
    ] = None,
    poses: io.PoseSearch = io.Poses.mirror,
    place: io.PlaceSearch = io.Place.whole,
    source_box: io.SourceBox = "",
    target_box: io.TargetBox = "",
    model: io.ModelName = "",
    backbone_weights: io.BackboneWeights = "",
    device: io.Device = "auto",
    overwrite: io.Overwrite = False,
) -> None:
    """Warp one picture onto another.

    Every point of the target shows its match in the source.

    \b
    Examples:
      chmnet warp donkey.png zebra.png -o warped.png
      chmnet warp donkey.png zebra.png -o mixed.png --method tps --blend 0.5
      chmnet warp donkey.png zebra.png -o warped.png --animate morph.gif
    """
    boxes = parse_box(source_box, "--source-box"), parse_box(target_box, "--target-box")
    io.check_picture_name(output)
    io.check_ending(animate, "an animation", ".gif")
    with io.whole_outputs([source, target], [output, animate], overwrite) as files:
        from chmnet.matcher import Matcher
        from chmnet.pictures import Picture
        from chmnet.viz import blend as blend_pictures
        from chmnet.viz import morph_frames
        from chmnet.weights import DEFAULT_MODEL

        pictures = Picture(source), Picture(target)
        images = pictures[0].image, pictures[1].image  # read before the model, which takes longer
        for box, path, image in zip(boxes, (source, target), images, strict=True):
            check_box(box, path, *image.size)
        matcher = Matcher(model or DEFAULT_MODEL, device, backbone_weights=backbone_weights, poses=poses.value)
        result = matcher.match(*pictures, boxes=boxes, place=place.value)
        warped, shape = result.warp(method.value), images[1]
        io.save_picture(blend_pictures(warped, shape, blend), files[output], output)
        if animate is not None:
            first, *others = morph_frames(shape, warped)
            durations = [80] * (1 + len(others))
            durations[0] = durations[len(durations) // 2] = 700  # rest at both ends
            io.save_picture(
                first, files[animate], animate, save_all=True, append_images=others, duration=durations, loop=0
            )
    io.print_pose(result)
