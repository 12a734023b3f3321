"""The OpenAPI document, held against the server by schemathesis."""

import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest
from fastapi.testclient import TestClient

from .process import running_server


def test_the_document_names_every_path(client: TestClient) -> None:
    document = client.get("/api/openapi.json").json()
    assert {"/api/match", "/api/models", "/api/pictures", "/api/propagations"} <= document["paths"].keys()
    for path, methods in document["paths"].items():
        for method, operation in methods.items():
            assert operation["summary"], (method, path)
            assert operation["responses"]["422"]["content"]["application/json"]["schema"]["$ref"].endswith(
                "ErrorAnswer"
            )


@pytest.mark.slow
def test_schemathesis_finds_nothing(tmp_path: Path) -> None:
    if find_spec("schemathesis") is None:
        pytest.skip("schemathesis is not installed: `make test-web` brings it")
    with running_server() as server:
        command = [
            str(Path(sys.executable).with_name("schemathesis")),
            "run",
            f"{server.address}/api/openapi.json",
            "--max-examples=30",
            "--seed=0",
            "--phases=examples,coverage,fuzzing,stateful",
            "--suppress-health-check=all",
            "--continue-on-failure",
            # No schema can say which bytes are a picture, or which text is JSON.
            "--exclude-checks=positive_data_acceptance",
        ]
        if not Path(command[0]).exists():
            command[:1] = [sys.executable, "-m", "schemathesis.cli"]
        run = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, check=False)
        assert run.returncode == 0, run.stdout[-8000:] + run.stderr[-2000:]
        assert server.json("/api/status")["waiting"] == 0
