"""Results as bytes: all that the page needs of one pair in one answer, dense flow, drawings.

The page asks once and then follows the pointer by itself. Layout of that answer, little-endian: the four bytes
``CHM1``, the length of the header (uint32), the header (JSON, padded with blanks so that what follows begins at a
multiple of eight bytes), then the blocks that the header names with their offsets from the end of the header.
"""

import io
import json
import struct
from typing import Any

import numpy as np
from jaxtyping import Float, UInt8
from PIL import Image
from torch import Tensor

from chmnet.config import TransferConfig
from chmnet.features import describe_view
from chmnet.formats import DenseFlow, save_npz
from chmnet.geometry import Size
from chmnet.ops.transfer import match_probabilities
from chmnet.result import MatchResult

MAGIC = b"CHM1"

MATCHES = 300
"""Matches that the page can show at once."""
LIKELIHOOD_STEP = 1 / 16
"""Of a logarithm: 255 steps reach down to a millionth of a per cent of the most likely place."""


def pack_result(result: MatchResult, **facts: Any) -> bytes:
    """Pack the best matches, positions and confidences (float32), and the correlation coarsely (uint8).

    Of the correlation the page needs only what it says about places: the probabilities that
    :meth:`MatchResult.heat` is made of. The row of a source position holds their logarithms below the largest,
    in steps of ``likelihood_step``: 255 is the most likely place, ``v`` is ``exp(step · (v − 255))`` times as
    likely, 0 is never. With steps of 1/16 a heat map is true to 3 % of its largest value.

    Args:
        result: of one pair.
        **facts: further entries of the header.

    Example:
        >>> from chmnet.matcher import match
        >>> result = match(Image.radial_gradient("L"), Image.radial_gradient("L"), model="nearest-neighbour")
        >>> header, blocks = unpack(pack_result(result, model="example"))
        >>> header["model"], blocks["likelihood"].shape, int(blocks["likelihood"].max())
        ('example', (900, 900), 255)
    """
    best = result.matches(MATCHES)
    blocks = {
        "best": np.column_stack([best.source, best.target, best.confidence]).astype(np.float32),
        "positions": result.forward.positions.float().cpu().numpy(),
        "confidence": result.confidence,
        "likelihood": np.concatenate([_coded(row, result.config) for row in result.scores[0, 0].cpu()]),
    }
    header = {
        "source_size": result.source_size,
        "target_size": result.target_size,
        "source_view": describe_view(result.source),
        "target_view": describe_view(result.target),
        "source_grid": tuple(result.scores.shape[2:4]),
        "target_grid": tuple(result.scores.shape[4:6]),
        "transfer": result.config.to_dict(),
        "likelihood_step": LIKELIHOOD_STEP,
        **facts,
    }
    return pack(header, blocks)


def _coded(scores: Float[Tensor, "ws ht wt"], config: TransferConfig) -> UInt8[np.ndarray, "ws places"]:
    """One row of source positions: how likely each place of the target is, in bytes."""
    likely = match_probabilities(scores[None, None], config)[0, 0].flatten(1).double()
    logarithms = (likely / likely.amax(1, keepdim=True)).log()  # −∞ becomes 0
    return (255 + logarithms / LIKELIHOOD_STEP).round().clamp(0, 255).byte().numpy()


def pack(header: dict[str, Any], blocks: dict[str, np.ndarray]) -> bytes:
    """Header and arrays as one string of bytes."""
    places, offset = {}, 0
    for name, values in blocks.items():
        places[name] = {"dtype": values.dtype.name, "shape": values.shape, "offset": offset}
        offset += _padded(values.nbytes)
    text = json.dumps({**header, "blocks": places}).encode()
    text = text.ljust(_padded(len(text) + 8) - 8)
    pieces = [MAGIC, struct.pack("<I", len(text)), text]
    for values in blocks.values():
        raw = np.ascontiguousarray(values.astype(values.dtype.newbyteorder("<"), copy=False)).tobytes()
        pieces.append(raw.ljust(_padded(len(raw)), b"\0"))
    return b"".join(pieces)


def unpack(data: bytes) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """The inverse of :func:`pack`: what a script does with the answer."""
    (length,) = struct.unpack("<I", data[4:8])
    header = json.loads(data[8 : 8 + length])
    blocks = {}
    for name, place in header["blocks"].items():
        count, start = int(np.prod(place["shape"])), 8 + length + place["offset"]
        dtype = np.dtype(place["dtype"]).newbyteorder("<")
        blocks[name] = np.frombuffer(data, dtype, count, start).reshape(place["shape"])
    return header, blocks


def _padded(length: int) -> int:
    return -(-length // 8) * 8


# ---------------------------------------------------------------- files


def within(size: Size, side: int) -> Size:
    """A (height, width) made to fit a square, with the same shape; what fits already stays.

    Example:
        >>> within((4000, 3000), 1000), within((40, 30), 1000)
        ((1000, 750), (40, 30))
    """
    scale = min(1.0, side / max(size))
    return max(1, round(size[0] * scale)), max(1, round(size[1] * scale))


def flow_file(result: MatchResult, side: int) -> bytes:
    """Flow and confidence as ``chmnet match --flow flow.npz`` writes them, on a map within a square."""
    size = within(result.source_size, side)
    dense = DenseFlow(result.flow(size), result.confidence_at(size), result.source_size, result.target_size)
    file = io.BytesIO()
    save_npz(file, dense)
    return file.getvalue()


def warp_file(result: MatchResult, picture: Image.Image, side: int) -> bytes:
    """The source picture in the frame of the target, within a square, as PNG."""
    return png(result.warp(picture=picture, size=within(result.target_size, side)))


def png(picture: Image.Image) -> bytes:
    """A picture as a file."""
    file = io.BytesIO()
    picture.save(file, format="PNG")
    return file.getvalue()
