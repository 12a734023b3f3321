"""PF-PASCAL's annotation files: MATLAB files with the keypoints and the box of one object."""

from pathlib import Path

import numpy as np

from chmnet.data.pairs import Box
from chmnet.data.reading import MAX_COORDINATE, read_box
from chmnet.errors import InputError


def read_annotation(path: Path) -> tuple[np.ndarray, Box | None]:
    """The keypoints (``kps``, n×2, NaN where a part cannot be seen) and the box (``bbox``), where there is one.

    Raises:
        InputError: the file is broken, of a version that cannot be read, or no PF-PASCAL annotation.
    """
    from scipy.io import loadmat  # takes a third of a second, and few need it

    try:
        content = loadmat(path)
    except NotImplementedError:
        raise InputError(f"{path} is a MATLAB file of version 7.3; save it with -v7 or older") from None
    except Exception as error:  # scipy raises many kinds of errors on files that are no MATLAB files
        reason = str(error).strip().partition("\n")[0] or type(error).__name__
        raise InputError(f"{path} cannot be read as a MATLAB file: {reason}") from None
    if "kps" not in content:
        found = ", ".join(name for name in content if not name.startswith("__")) or "nothing"
        raise InputError(f"{path} is no PF-PASCAL annotation: it has no kps, only {found}")
    keypoints = content["kps"]
    if keypoints.ndim != 2 or keypoints.shape[1] != 2 or keypoints.dtype.kind not in "fiu":
        raise InputError(
            f"{path}: kps must be numbers of shape n×2, got shape {'×'.join(map(str, keypoints.shape))}"
        )
    keypoints = keypoints.astype(np.float64)
    if np.nanmax(np.abs(keypoints), initial=0) > MAX_COORDINATE:
        raise InputError(f"{path}: kps has a number larger than any picture")
    if "bbox" not in content:
        return keypoints, None
    return keypoints, read_box(content["bbox"].reshape(-1).tolist(), f"{path}: bbox")
