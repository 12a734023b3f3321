"""One server for all tests of the API: real models and pictures, small enough for every run of the suite."""

from collections.abc import Iterator

import pytest
from fastapi.testclient import TestClient

from chmnet.web.app import create_app
from chmnet.web.settings import Settings
from tests.conftest import REPOSITORY

EXAMPLES = REPOSITORY / "examples"


@pytest.fixture(scope="package")
def client() -> Iterator[TestClient]:
    with TestClient(create_app(Settings(examples=EXAMPLES)), base_url="http://127.0.0.1:8000") as client:
        yield client
