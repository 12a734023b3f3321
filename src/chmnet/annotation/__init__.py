"""From a few annotated pictures to many: predict, join, write COCO keypoints, show them."""

from chmnet.annotation.coco import Origin, to_coco
from chmnet.annotation.propagate import Outcome, describe_run, propagate
from chmnet.annotation.records import Moved, PartialFile, Propagated
from chmnet.annotation.sheet import draw_sheet
from chmnet.annotation.targets import Skipped, find_pictures
from chmnet.annotation.vote import join_votes

__all__ = [
    "Moved",
    "Origin",
    "Outcome",
    "PartialFile",
    "Propagated",
    "Skipped",
    "describe_run",
    "draw_sheet",
    "find_pictures",
    "join_votes",
    "propagate",
    "to_coco",
]
