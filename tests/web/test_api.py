"""The HTTP API, against the library's own answers."""

import json

import numpy as np
import pytest
from fastapi.testclient import TestClient

import chmnet
from chmnet.matcher import MatchResult
from chmnet.web.container import unpack

from .conftest import EXAMPLES

DONKEY, ZEBRA = EXAMPLES / "donkey.png", EXAMPLES / "zebra.png"
POINTS = [[7.0, 72.0], [85.0, 44.0], [178.25, 38.5]]


@pytest.fixture(scope="module")
def result() -> MatchResult:
    return chmnet.match(DONKEY, ZEBRA)


def load(client: TestClient, name: str) -> str:
    answer = client.post("/api/pictures", content=(EXAMPLES / name).read_bytes())
    assert answer.status_code == 201, answer.text
    return answer.json()["id"]


def test_page_and_its_files(client: TestClient) -> None:
    page = client.get("/")
    assert page.status_code == 200
    assert '<script type="module" src="/static/main.js">' in page.text
    for file in ("main.js", "style.css", "icon.svg"):
        assert client.get(f"/static/{file}").status_code == 200
    assert client.get("/static/../app.py").status_code == 404


def test_match_two_files_equals_the_library(client: TestClient, result: MatchResult) -> None:
    files = {"source": DONKEY.read_bytes(), "target": ZEBRA.read_bytes()}
    answer = client.post("/api/match", files=files, data={"points": json.dumps(POINTS)})
    assert answer.status_code == 200, answer.text
    found = answer.json()
    expected = result.transfer(POINTS)
    np.testing.assert_allclose([row["target"] for row in found["matches"]], expected.target, atol=0.01)
    np.testing.assert_allclose([row["confidence"] for row in found["matches"]], expected.confidence, atol=1e-3)
    assert found["source_size"] == [161, 200]


def test_pair_for_the_page_holds_positions_and_votes(client: TestClient, result: MatchResult) -> None:
    source, target = load(client, "donkey.png"), load(client, "zebra.png")
    answer = client.get(f"/api/pairs/{source}/{target}")
    assert answer.status_code == 200, answer.text
    header, blocks = unpack(answer.content)
    assert header["source_grid"] == [30, 30]
    np.testing.assert_allclose(blocks["positions"], result.positions[0], atol=1e-4)
    scores = result.correlation[0, 0].flatten(2).flatten(0, 1).numpy()
    read = blocks["low"][:, None] + blocks["step"][:, None] * blocks["correlation"]
    assert np.abs(read - scores).max() <= blocks["step"].max() / 2 + 1e-5
    assert len(answer.content) < 0.85e6
