"""The server as a process: end, fuzzing, load, and how much it adds to the network's own time."""

import contextlib
import io
import json
import random
import signal
import socket
import statistics
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator

import numpy as np
import pytest
from PIL import Image

import chmnet
from chmnet.result import MatchResult
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
        assert server.process.returncode == 0
        assert server.process.stdout is not None
        assert server.process.stdout.read() == "chmnet: stopped\n"
        assert "Traceback" not in server.log()
        assert "Error" not in server.log()
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
            "sources": chance.choice([[], "x", [{"picture": nobody, "points": [[1]]}], None]),
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


# ---------------------------------------------------------------- slow clients, large pictures


def test_a_client_that_sends_nothing_is_cut_off_and_others_are_answered(server: RunningServer) -> None:
    begun = time.monotonic()
    address = ("127.0.0.1", server.port)
    with socket.create_connection(address) as silent, socket.create_connection(address) as slow:
        slow.sendall(b"GET /api/models HTTP/1.1\r\nHost: 127.0.0.1\r\nX-Never: ")
        assert server.ask("/api/status")[0] == 200
        for connection in (silent, slow):
            connection.settimeout(40)
            with contextlib.suppress(ConnectionResetError):
                assert connection.recv(1) == b""
    assert 15 < time.monotonic() - begun < 40
    assert server.ask("/api/status")[0] == 200


def test_a_picture_that_unpacks_to_a_hundred_megapixels(server: RunningServer) -> None:
    """100 kB that become 400 MB: in the decoder only, which ends in time."""
    file = io.BytesIO()
    Image.new("1", (10_000, 10_000)).save(file, format="PNG")
    memory = server.resident_mb()
    status, answer, _ = server.ask("/api/pictures", file.getvalue())
    assert (status, json.loads(answer)["width"]) == (201, 10_000)
    too_large = io.BytesIO()
    Image.new("1", (10_001, 10_000)).save(too_large, format="PNG")
    assert server.ask("/api/pictures", too_large.getvalue())[0] == 413
    assert server.own_mb() < memory + 150
    print(f"{len(file.getvalue()) / 1000:.0f} kB for 100 megapixels: {memory:.0f} → {server.own_mb():.0f} MB")  # noqa: T201


# ---------------------------------------------------------------- load

NAMES = ["donkey.png", "zebra.png", "sedan.png", "sportscar.png"]
POINTS = [[40.0, 30.0], [90.0, 45.0]]


class Client:
    """A script or a browser that asks again and again, and looks at every answer."""

    def __init__(self, server: RunningServer, results: dict[tuple[str, str], MatchResult], seed: int) -> None:
        self.server = server
        self.results = results
        self.chance = random.Random(seed)
        self.counts: Counter[str] = Counter()
        self.wrong: list[str] = []
        self.cookie = ""

    def live(self, until: float, life: Callable[["Client"], None]) -> None:
        while time.monotonic() < until:
            try:
                life(self)
            except BusyError as busy:
                self.counts["busy"] += 1
                time.sleep(busy.seconds)
            except (OSError, AssertionError, KeyError, ValueError) as error:
                self.wrong.append(repr(error)[:300])

    def ask(self, path: str, data: bytes | None = None, method: str | None = None, **headers: str) -> bytes:
        if self.cookie:
            headers["Cookie"] = self.cookie
        status, answer, extra = self.server.ask(path, data, method, headers)
        extra = {key.lower(): value for key, value in extra.items()}
        if status == 503:
            raise BusyError(float(extra["retry-after"]))
        assert 200 <= status < 300, (status, answer[:100])
        if "set-cookie" in extra:
            self.cookie = extra["set-cookie"].split(";")[0]
        return answer

    def check(self, found: object, expected: np.ndarray, tolerance: float = 0.01) -> None:
        assert np.abs(np.asarray(found) - expected).max() < tolerance, "a wrong answer"
        self.counts["right"] += 1


class BusyError(Exception):
    """The server asks to come back."""

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds


def one_shot(client: Client) -> None:
    first, second = client.chance.sample(NAMES, 2)
    files = [(EXAMPLES / name).read_bytes() for name in (first, second)]
    data, headers = form(files[0], files[1], points=json.dumps(POINTS))
    answer = json.loads(client.ask("/api/match", data, **headers))
    client.check(
        [row["target"] for row in answer["matches"]], client.results[first, second].transfer(POINTS).target
    )


def session(client: Client) -> None:
    """Load pictures, ask about pairs of them, sometimes carry points, and go."""
    client.cookie = ""
    names = client.chance.sample(NAMES, 3)
    try:
        # Another picture of noise each time: nothing is known already.
        keys = [json.loads(client.ask("/api/pictures", (EXAMPLES / name).read_bytes()))["id"] for name in names]
        noise = picture_file(50, 40, seed=client.chance.randrange(2**31))
        unknown = json.loads(client.ask("/api/pictures", noise))["id"]
        for _ in range(3):
            a, b = client.chance.sample(range(3), 2)
            result = client.results[names[a], names[b]]
            header, blocks = unpack(client.ask(f"/api/pairs/{keys[a]}/{keys[b]}"))
            assert tuple(header["source_size"]) == result.source_size
            client.check(blocks["positions"], result.forward.positions.numpy(), 1e-3)
            rows = json.loads(client.ask(f"/api/pairs/{keys[a]}/{keys[b]}/matches?top=5"))["matches"]
            client.check([row["target"] for row in rows], result.matches(5).target)
        assert client.ask(f"/api/pairs/{keys[0]}/{unknown}/warp.png?side=64").startswith(b"\x89PNG")
        wish = {"sources": [{"picture": keys[0], "points": POINTS}], "targets": [keys[1], unknown]}
        job = json.loads(client.ask("/api/propagations", json.dumps(wish).encode(), **JSON))
        while job["state"] == "running":
            time.sleep(0.3)
            job = json.loads(client.ask(f"/api/propagations/{job['id']}"))
        assert job["state"] == "done", job
        client.check(job["pictures"][0]["points"], client.results[names[0], names[1]].transfer(POINTS).target)
    finally:
        with contextlib.suppress(BusyError):
            client.ask("/api/session", method="DELETE")
            client.counts["sessions"] += 1


JSON = {"Content-Type": "application/json"}


@pytest.mark.parametrize(("life", "bound_mb"), [(one_shot, 600), (session, 900)])
def test_50_clients_for_a_minute(server: RunningServer, life: Callable[[Client], None], bound_mb: int) -> None:
    """Every answer is the right one or "busy"; memory stays bounded."""
    results = {(a, b): chmnet.match(EXAMPLES / a, EXAMPLES / b) for a in NAMES for b in NAMES if a != b}
    clients = [Client(server, results, seed) for seed in range(CLIENTS)]
    until = time.monotonic() + SECONDS
    memory = [server.resident_mb()]
    threads = [threading.Thread(target=client.live, args=(until, life)) for client in clients]
    for thread in threads:
        thread.start()
    while any(thread.is_alive() for thread in threads):
        memory.append(server.resident_mb())
        time.sleep(1)
    counts = sum((client.counts for client in clients), Counter())
    print(f"{CLIENTS} clients, {SECONDS} s: {dict(counts)}; {memory[0]:.0f} → at most {max(memory):.0f} MB")  # noqa: T201
    assert [line for client in clients for line in client.wrong] == []
    assert counts["right"] > 0
    assert max(memory) < memory[0] + bound_mb
    assert server.json("/api/status")["waiting"] == 0


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


def picture_of(data: bytes) -> Image.Image:
    return Image.open(io.BytesIO(data))
