"""One server for all tests of the API: real models and pictures, small enough for every run of the suite."""

import io
from collections.abc import Callable, Iterator

import numpy as np
import pytest
from fastapi.testclient import TestClient
from PIL import Image

from chmnet.web.app import create_app
from chmnet.web.settings import Limits, Settings
from tests.conftest import REPOSITORY

EXAMPLES = REPOSITORY / "examples"
ADDRESS = "http://127.0.0.1:8000"
DONKEY, ZEBRA = EXAMPLES / "donkey.png", EXAMPLES / "zebra.png"


@pytest.fixture(scope="package")
def server() -> Iterator[TestClient]:
    with TestClient(create_app(Settings(examples=EXAMPLES)), base_url=ADDRESS) as client:
        yield client


@pytest.fixture
def client(server: TestClient) -> TestClient:
    """The server as somebody new sees it: without the cookie of an earlier session."""
    server.cookies.clear()
    return server


@pytest.fixture
def limited() -> Iterator[Callable[..., TestClient]]:
    """Servers with other limits; what they need is started when it is first used."""
    apps = []

    def make(**limits: float) -> TestClient:
        app = create_app(Settings(limits=Limits(**limits)))
        apps.append(app)
        return TestClient(app, base_url=ADDRESS, raise_server_exceptions=False)

    yield make
    for app in apps:
        app.state.service.close()


def picture_file(width: int = 40, height: int = 30, seed: int = 0, kind: str = "PNG") -> bytes:
    """A picture of noise."""
    values = np.random.default_rng(seed).integers(0, 255, (height, width, 3), dtype=np.uint8)
    file = io.BytesIO()
    Image.fromarray(values).save(file, format=kind)
    return file.getvalue()


def load(client: TestClient, data: bytes) -> str:
    answer = client.post("/api/pictures", content=data)
    assert answer.status_code == 201, answer.text
    return str(answer.json()["id"])


def assert_refused(answer, status: int, words: str = "") -> None:  # type: ignore[no-untyped-def]
    """An error as every error should be: a sentence, an advice, the security headers, nothing of the inside."""
    assert answer.status_code == status, answer.text
    told = answer.json()
    assert told.keys() == {"error", "what_to_do"}
    assert words in told["error"]
    assert "Traceback" not in answer.text
    assert answer.headers["content-security-policy"].startswith("default-src 'none'")
