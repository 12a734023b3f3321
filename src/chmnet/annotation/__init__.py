"""From a few annotated pictures to many: match, choose, write COCO keypoints, show them."""

from chmnet.annotation.boxes import TargetBox, load_target_boxes
from chmnet.annotation.choice import Guess, choose, make_guess
from chmnet.annotation.coco import Origin, to_coco
from chmnet.annotation.propagate import Outcome, describe_run, propagate
from chmnet.annotation.records import Moved, PartialFile, Pose, Propagated
from chmnet.annotation.sheet import draw_sheet
from chmnet.annotation.targets import Skipped, find_pictures

__all__ = [
    "Guess",
    "Moved",
    "Origin",
    "Outcome",
    "PartialFile",
    "Pose",
    "Propagated",
    "Skipped",
    "TargetBox",
    "choose",
    "describe_run",
    "draw_sheet",
    "find_pictures",
    "load_target_boxes",
    "make_guess",
    "propagate",
    "to_coco",
]
