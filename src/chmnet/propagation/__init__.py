"""From a few annotated pictures to many: predict, join, write COCO keypoints, show them."""

from chmnet.propagation.document import Origin, to_coco
from chmnet.propagation.records import Moved, PartialFile, Propagated
from chmnet.propagation.run import Outcome, describe_run, propagate
from chmnet.propagation.sheet import draw_sheet
from chmnet.propagation.targets import Skipped, find_pictures
from chmnet.propagation.vote import join_votes

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
