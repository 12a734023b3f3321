"""Which files a request for a pair goes through."""

import pytest
from fastapi.testclient import TestClient

from chmnet.web.app import create_app
from chmnet.web.settings import Settings
from tests.test_paths import traced

from .conftest import ADDRESS, DONKEY, ZEBRA, load

MOST_FILES = 26


@pytest.mark.parametrize(("poses", "more"), [("upright", 0), ("mirror", 2)])
def test_a_pair_goes_through_few_files(poses: str, more: int) -> None:
    """The server's threads begin inside of the block, so that they are traced too; only the request counts."""
    with traced() as trace, TestClient(create_app(Settings()), base_url=ADDRESS) as client:
        source, target = (load(client, path.read_bytes()) for path in (DONKEY, ZEBRA))
        trace.files.clear()
        assert client.get(f"/api/pairs/{source}/{target}?poses={poses}").status_code == 200
        trace.on = False
    assert {"matcher", "ops/transfer", "web/routes", "web/container"} <= trace.files
    assert len(trace.files) <= MOST_FILES + more, sorted(trace.files)
