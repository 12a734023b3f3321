"""How much memory matching takes, and what a limit leaves for the pieces that the finer grid is worked on in."""

import math
import numbers

from chmnet.config import ConsensusConfig, HoughConfig
from chmnet.errors import InputError
from chmnet.geometry import Size
from chmnet.nn.backbones import feature_grid
from chmnet.nn.inference import InferenceHead
from chmnet.ops.correlation import CHUNK_BYTES

BACKBONE_BYTES = 600
"""Memory for each pixel of an image while its features are computed: what the largest backbone needs."""

OTHER_BYTES = 13 * 2**20
"""What libraries and threads need for themselves."""

VOTE_COPIES = 5
"""How often the correlation over scales is in memory while it is made and voted on."""


def check_memory(memory_mb: float) -> float:
    """A limit of memory in megabytes.

    Raises:
        InputError: it is no positive, finite number.
    """
    if not (isinstance(memory_mb, numbers.Real) and math.isfinite(memory_mb) and memory_mb > 0):
        raise InputError(f"memory_mb must be a positive, finite number of megabytes, got {memory_mb!r}")
    return float(memory_mb)


def chunk_bytes(head: InferenceHead, source_size: Size, target_size: Size, memory_mb: float) -> int:
    """What a memory limit leaves for the pieces of the finer grid, images of these sizes being matched.

    What counts is memory beside the network and the images; the result, which must fit too, is part of it.

    Args:
        head: of the network.
        source_size: (height, width) of the source image.
        target_size: (height, width) of the target image.
        memory_mb: the limit.

    Raises:
        InputError: the limit is too low; the message says how much is needed.
    """
    check_memory(memory_mb)
    config, number_bytes = head.config, next((p.element_size() for p in head.parameters()), 4)
    pixels = max(math.prod(size) for size in (source_size, target_size))
    grids = feature_grid(source_size), feature_grid(target_size)
    coarse_cells = math.prod(grids[0]) * math.prod(grids[1])
    fine_cells = coarse_cells * config.output.upsample**4
    votes = config.matching.channels if isinstance(config.matching, HoughConfig) else 1
    if isinstance(config.matching, ConsensusConfig):
        votes = 2 * max(config.matching.channels)
    turns = len(config.correlation.rotations)
    first = (VOTE_COPIES + turns - 1) * len(config.correlation.scales) ** 2 * votes * coarse_cells * number_bytes
    results = 2 * fine_cells * number_bytes  # the scores, and what they become
    results += 0 if turns == 1 else head.piece_copies() * fine_cells * number_bytes  # they are made in one piece
    fixed = OTHER_BYTES + pixels * BACKBONE_BYTES + max(first, results)
    rows = config.output.upsample * grids[0][0]
    piece = min(rows, 1 + 2 * head.reach(rows))
    least = head.piece_copies() * fine_cells * number_bytes * piece // rows
    limit = int(memory_mb * 2**20)
    if fixed + least > limit:
        raise InputError(
            f"matching needs about {math.ceil((fixed + least) / 2**20)} MB beside the network, "
            f"more than the limit of {memory_mb:g}; raise the limit, or use smaller images"
        )
    return min(limit - fixed, CHUNK_BYTES)
