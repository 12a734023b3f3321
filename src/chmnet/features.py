"""Features of many pictures, each computed once: a cache in memory that overflows to disk."""

import hashlib
import shutil
import tempfile
from collections import OrderedDict
from pathlib import Path
from types import TracebackType

import torch
from PIL import Image
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor

from chmnet.errors import InputError
from chmnet.geometry import Size
from chmnet.nn.chmnet import CHMNet, Pyramid
from chmnet.pictures import to_picture, to_tensor

MEMORY_BYTES = 512 * 2**20
"""How much the cache keeps in memory; what is pushed out goes to a temporary folder."""


Key = tuple[Path | bytes, str]
"""A path or the fingerprint of a picture, and the branch of the network."""


class FeatureStore:
    """Feature pyramids of pictures, computed once each, whatever number of pairs they are in.

    A picture file is known by its path, any other picture by what the network sees of it.

    Use it as a context manager: the folder with what did not fit into memory is removed at the end.

    Args:
        model: the network that makes the features.
        memory_bytes: what may be kept in memory.
    """

    def __init__(self, model: CHMNet, memory_bytes: int = MEMORY_BYTES) -> None:
        self.model = model
        self.memory_bytes = memory_bytes
        self.computed = 0
        """How many pictures went through the backbone."""
        self._kept: OrderedDict[Key, Pyramid] = OrderedDict()
        self._bytes = 0
        self._files: dict[Key, tuple[Path, Size]] = {}
        self._sizes: dict[Path, Size] = {}
        self._folder: Path | None = None

    def __enter__(self) -> "FeatureStore":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._folder is not None:
            shutil.rmtree(self._folder, ignore_errors=True)
        self._kept.clear()

    def pyramid(self, picture: Path | Image.Image, branch: str = "source", keep: bool = True) -> Pyramid:
        """The picture's features; ``branch`` matters only for separate backbones.

        Args:
            picture: a file, or an RGB picture.
            branch: ``"source"`` or ``"target"``.
            keep: off: for a picture that will hardly be asked for again; what is computed now is not stored.
        """
        if self.model.target_backbone is None:
            branch = "source"
        image = None
        if isinstance(picture, Path):
            key: Key = (picture, branch)
        else:
            image = to_tensor(picture, self.model.config.image_size)[None]
            key = (hashlib.sha256(image.numpy().tobytes()).digest(), branch)
        if key in self._kept:
            self._kept.move_to_end(key)
            return self._kept[key]
        if key in self._files:
            file, size = self._files[key]
            stored = load_file(file, device=str(next(self.model.parameters()).device))
            pyramid = Pyramid([stored[str(number)] for number in range(len(stored))], size)
        else:
            if image is None:
                assert isinstance(picture, Path)
                image = self._open(picture)
            pyramid = self._compute(image, branch)
        if keep:
            self._keep(key, pyramid)
        return pyramid

    def size(self, path: Path) -> Size:
        """(height, width) of a picture file whose features were asked for."""
        return self._sizes[path]

    def _open(self, path: Path) -> Tensor:
        picture = to_picture(path)
        self._sizes[path] = (picture.height, picture.width)
        return to_tensor(picture, self.model.config.image_size)[None]

    def _compute(self, image: Tensor, branch: str) -> Pyramid:
        with torch.inference_mode():
            features = self.model.features(image.to(next(self.model.parameters())), branch)
            self.computed += 1
            return self.model.head.pyramid(features)

    def _keep(self, key: Key, pyramid: Pyramid) -> None:
        self._kept[key] = pyramid
        self._bytes += _bytes(pyramid)
        while self._bytes > self.memory_bytes and len(self._kept) > 1:
            oldest, pushed_out = self._kept.popitem(last=False)
            self._bytes -= _bytes(pushed_out)
            if oldest not in self._files:
                self._files[oldest] = (self._write(pushed_out), pushed_out.size)

    def _write(self, pyramid: Pyramid) -> Path:
        if self._folder is None:
            self._folder = Path(tempfile.mkdtemp(prefix="chmnet-features-"))
        file = self._folder / f"{len(self._files)}.safetensors"
        try:
            save_file({str(number): level.contiguous() for number, level in enumerate(pyramid.levels)}, file)
        except SafetensorError as error:  # how safetensors reports a full disk
            raise InputError(f"cannot write features to the temporary folder {self._folder}: {error}") from None
        return file


def _bytes(pyramid: Pyramid) -> int:
    return sum(level.numel() * level.element_size() for level in pyramid.levels)
