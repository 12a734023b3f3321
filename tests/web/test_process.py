"""The server as a process: end, fuzzing, load, and how much it adds to the network's own time."""

import io
import json
import random
import signal
import statistics
import threading
import time
from collections import Counter
from collections.abc import Iterator

import numpy as np
import pytest

import chmnet
from chmnet.web.container import unpack

from .conftest import DONKEY, EXAMPLES, ZEBRA, picture_file
from .process import RunningServer, running_server

pytestmark = pytest.mark.slow

CLIENTS, SECONDS = 50, 60


@pytest.fixture(scope="module")
def server() -> Iterator[RunningServer]:  # type: ignore[misc]
    with running_server() as running:
        yield running


def form(source: bytes, target: bytes, **fields: str) -> tuple[bytes, dict[str, str]]:
    """A multipart form, written by hand."""
    body = io.BytesIO()
    for name, data in (("source", source), ("target", target)):
        body.write(b'--edge\r\nContent-Disposition: form-data; name="%s"; filename="x"\r\n\r\n' % name.encode())
        body.write(data + b"\r\n")
    for name, text in fields.items():
        body.write(f'--edge\r\nContent-Disposition: form-data; name="{name}"\r\n\r\n{text}\r\n'.encode())
    body.write(b"--edge--\r\n")
    return body.getvalue(), {"Content-Type": "multipart/form-data; boundary=edge"}


# ---------------------------------------------------------------- the end


@pytest.mark.parametrize("sign", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_the_server_soon_and_nobody_waits_in_vain(sign: signal.Signals) -> None:
    with running_server() as server:
        answers: list[int] = []

        def ask(seed: int) -> None:
            data, headers = form(picture_file(seed=seed), picture_file(seed=seed + 100))
            try:
                answers.append(server.ask("/api/match", data, headers=headers)[0])
            except OSError:
                answers.append(0)  # connected while the socket closed

        clients = [threading.Thread(target=ask, args=(seed,)) for seed in range(12)]
        for client in clients:
            client.start()
        time.sleep(0.5)
        begun = time.perf_counter()
        server.process.send_signal(sign)
        server.process.wait(timeout=20)
        took = time.perf_counter() - begun
        for client in clients:
            client.join(timeout=20)
    print(f"ended {took:.1f} s after the signal")  # noqa: T201
    assert took < 10  # about one on a machine that does nothing else
    assert len(answers) == 12
    assert set(answers) <= {200, 503, 0}
    assert {200, 503} & set(answers)


# ---------------------------------------------------------------- 200 malformed requests


def malformed(number: int, chance: random.Random) -> tuple[str, str, bytes | None, dict[str, str]]:
    """(method, path, body, headers) of a request that must be refused."""
    picture = bytearray(DONKEY.read_bytes())
    nobody = "".join(chance.choice("0123456789abcdef") for _ in range(32))
    noise = bytes(chance.randrange(256) for _ in range(chance.randrange(1, 3000)))
    kind = number % 10
    if kind == 0:
        return "POST", "/api/pictures", noise, {}
    if kind == 1:  # a picture cut short
        return "POST", "/api/pictures", bytes(picture[: chance.randrange(1, len(picture) // 2)]), {}
    if kind == 2:  # a picture with its header damaged
        for _ in range(6):
            picture[chance.randrange(8, 33)] ^= 0xFF
        return "POST", "/api/pictures", bytes(picture), {}
    if kind == 3:
        starts = [b"\x89PNG\r\n\x1a\n", b"\xff\xd8\xff\xe0", b"GIF89a", b"BM", b"RIFF\x00\x00\x00\x00WEBP"]
        return "POST", "/api/pictures", chance.choice(starts) + noise, {}
    if kind == 4:
        data, headers = form(
            bytes(picture), noise, points=noise.decode("latin-1").replace("\r", "").replace("\n", "")
        )
        return "POST", "/api/match", data, headers
    if kind == 5:
        data, headers = form(bytes(picture), bytes(picture))
        return "POST", "/api/match", data[: chance.randrange(1, 200)], headers
    if kind == 6:
        wish = {
            "source": chance.choice([nobody, 3, None, "../x"]),
            "points": chance.choice([[], "x", [[1]], None]),
        }
        return "POST", "/api/propagations", json.dumps(wish).encode(), {"Content-Type": "application/json"}
    if kind == 7:
        return "POST", "/api/propagations", noise, {"Content-Type": "application/json"}
    if kind == 8:
        path = chance.choice(
            [f"/api/pairs/{nobody}/{nobody}", "/api/pairs/..%2f..%2fetc/passwd", f"/api/jobs/{nobody}"]
        )
        return "GET", path, None, {}
    bad = chance.choice([{"Host": "evil.example"}, {"Origin": "null"}, {"Sec-Fetch-Site": "cross-site"}])
    return "GET", "/api/models", None, bad


def test_200_malformed_requests_leave_the_server_as_it_was(server: RunningServer) -> None:
    data, headers = form(DONKEY.read_bytes(), ZEBRA.read_bytes(), points="[[85, 44]]")
    before = json.loads(server.ask("/api/match", data, headers=headers)[1])["matches"]
    memory = server.resident_mb()
    chance = random.Random(0)
    statuses: Counter[int] = Counter()
    for number in range(200):
        method, path, body, extra = malformed(number, chance)
        status, answer, _ = server.ask(path, body, method, extra)
        assert 400 <= status < 500, (number, method, path, status, answer[:200])
        told = json.loads(answer)
        assert told.keys() == {"error", "what_to_do"}
        assert b"Traceback" not in answer
        statuses[status] += 1
    assert server.process.poll() is None
    assert json.loads(server.ask("/api/match", data, headers=headers)[1])["matches"] == before
    assert server.json("/api/status")["waiting"] == 0
    assert server.resident_mb() < memory + 100
    print(f"200 malformed requests: {dict(statuses)}; {memory:.0f} → {server.resident_mb():.0f} MB")  # noqa: T201


# ---------------------------------------------------------------- load


def test_50_clients_for_a_minute(server: RunningServer) -> None:
    """Every answer is the right one or "busy"; memory stays bounded."""
    names = ["donkey.png", "zebra.png", "sedan.png", "sportscar.png"]
    files = {name: (EXAMPLES / name).read_bytes() for name in names}
    points = [[40.0, 30.0], [90.0, 45.0]]
    expected = {
        (a, b): chmnet.match(EXAMPLES / a, EXAMPLES / b).transfer(points).target
        for a in names
        for b in names
        if a != b
    }
    counts: Counter[str] = Counter()
    wrong: list[str] = []
    until = time.monotonic() + SECONDS

    def live(seed: int) -> None:
        chance = random.Random(seed)
        while time.monotonic() < until:
            first, second = chance.sample(names, 2)
            data, headers = form(files[first], files[second], points=json.dumps(points))
            try:
                status, answer, extra = server.ask("/api/match", data, headers=headers)
            except OSError as error:
                wrong.append(repr(error))
                continue
            if status == 200:
                found = [row["target"] for row in json.loads(answer)["matches"]]
                right = np.abs(np.asarray(found) - expected[first, second]).max() < 0.01
                counts["right" if right else "wrong"] += 1
            elif status == 503:
                counts["busy"] += 1
                time.sleep(float({key.lower(): value for key, value in extra.items()}["retry-after"]))
            else:
                wrong.append(f"{status} {answer[:100]!r}")

    memory = [server.resident_mb()]
    clients = [threading.Thread(target=live, args=(seed,)) for seed in range(CLIENTS)]
    for client in clients:
        client.start()
    while any(client.is_alive() for client in clients):
        memory.append(server.resident_mb())
        time.sleep(1)
    assert wrong == []
    assert counts["wrong"] == 0
    assert counts["right"] > 0
    assert max(memory) < memory[0] + 600
    assert server.json("/api/status")["waiting"] == 0
    print(f"{CLIENTS} clients, {SECONDS} s: {dict(counts)}; {memory[0]:.0f} → at most {max(memory):.0f} MB")  # noqa: T201


# ---------------------------------------------------------------- what the server adds


def test_first_result_of_a_new_pair_takes_less_than_twice_the_matching_itself() -> None:
    """Upload of both pictures, matching and the whole binary answer, against Matcher.match in the same run."""
    from fastapi.testclient import TestClient

    from chmnet.matcher import Matcher
    from chmnet.web.app import create_app
    from chmnet.web.settings import Settings

    matcher = Matcher()
    requests, library = [], []
    with TestClient(create_app(Settings()), base_url="http://127.0.0.1:8000") as client:
        for seed in range(14):
            pair = [picture_file(240, 240, 2 * seed + side) for side in range(2)]
            begun = time.perf_counter()
            ids = [client.post("/api/pictures", content=data).json()["id"] for data in pair]
            answer = client.get(f"/api/pairs/{ids[0]}/{ids[1]}")
            assert unpack(answer.content)[0]["milliseconds"]
            requests.append(time.perf_counter() - begun)
            begun = time.perf_counter()
            result = matcher.match(*(picture_of(data) for data in pair))
            result.transfer([[1, 1]])  # as `chmnet match` does: positions and confidences
            library.append(time.perf_counter() - begun)
    ours, theirs = statistics.median(requests[4:]), statistics.median(library[4:])
    print(f"new pair: {1000 * ours:.0f} ms by requests, {1000 * theirs:.0f} ms by the library")  # noqa: T201
    assert ours < 2 * theirs


def picture_of(data: bytes):  # type: ignore[no-untyped-def]
    from PIL import Image

    return Image.open(io.BytesIO(data))
