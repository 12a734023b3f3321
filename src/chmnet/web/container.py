"""All that the page needs of one pair, in one small binary answer, so that the pointer needs no round trips.

Layout, little-endian: the four bytes ``CHM1``, the length of the header (uint32), the header (JSON, padded with
blanks so that what follows begins at a multiple of eight bytes), then the blocks that the header names with
their offsets from the end of the header.
"""

import json
import struct
from typing import Any

import numpy as np

from chmnet.matcher import MatchResult

MAGIC = b"CHM1"


def pack_result(result: MatchResult, **facts: Any) -> bytes:
    """Pack positions and confidences exactly (float32), and the correlation coarsely (uint8 and a range a row).

    Args:
        result: of one pair.
        **facts: further entries of the header.

    Example:
        >>> import torch
        >>> from chmnet.config import TransferConfig
        >>> result = MatchResult(torch.eye(4).view(1, 1, 2, 2, 2, 2), (10, 10), (20, 20), TransferConfig())
        >>> header, blocks = unpack(pack_result(result, model="example"))
        >>> header["model"], blocks["correlation"].tolist()[0]
        ('example', [255, 0, 0, 0])
    """
    scores = result.correlation[0, 0].flatten(2).flatten(0, 1).float().numpy()
    low, high = scores.min(axis=1), scores.max(axis=1)
    step = np.maximum(high - low, np.float32(1e-30)) / 255
    blocks = {
        "positions": result.positions[0].float().numpy(),
        "confidence": result.confidence,
        "low": low,
        "step": step,
        "correlation": np.round((scores - low[:, None]) / step[:, None]).astype(np.uint8),
    }
    header = {
        "source_size": result.source_size,
        "target_size": result.target_size,
        "source_grid": tuple(result.correlation.shape[2:4]),
        "target_grid": tuple(result.correlation.shape[4:6]),
        "transfer": result.config.to_dict(),
        **facts,
    }
    return pack(header, blocks)


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
