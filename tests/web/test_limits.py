"""What the server refuses, forgets and survives."""

import asyncio
import io
import struct
import sys
import time
import zlib
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from fastapi.testclient import TestClient
from PIL import Image
from starlette.requests import Request

from chmnet.errors import InputError
from chmnet.web.answers import WebError, answer
from chmnet.web.decoder import answer_all, decode_here
from chmnet.web.models import Models, offers
from chmnet.web.security import HEADERS, host_allowed
from chmnet.web.service import Pair
from chmnet.web.sessions import Session, Sessions, StoredPicture
from chmnet.web.settings import Limits, Settings
from chmnet.web.uploads import Bodies, Decoder

from .conftest import DONKEY, assert_refused, load, picture_file

Limited = Callable[..., TestClient]


def png_header(width: int, height: int) -> bytes:
    """A PNG file that claims a size and holds nothing."""
    chunks = [b"IHDR" + struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0), b"IDAT" + zlib.compress(b"")]
    packed = [struct.pack(">I", len(body) - 4) + body + struct.pack(">I", zlib.crc32(body)) for body in chunks]
    return b"\x89PNG\r\n\x1a\n" + b"".join(packed)


def text_bomb() -> bytes:
    """A PNG file whose comment unpacks to 200 MB."""
    body = b"zTXtcomment\0\0" + zlib.compress(bytes(200 * 2**20), 9)
    chunk = struct.pack(">I", len(body) - 4) + body + struct.pack(">I", zlib.crc32(body))
    whole = picture_file()
    return whole[:33] + chunk + whole[33:]  # after the header


# ---------------------------------------------------------------- who may ask


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"Host": "evil.example"}, 421),
        ({"Host": "127.0.0.1.evil.example:8000"}, 421),
        ({"Host": "192.168.0.7:8000"}, 421),
        ({"Host": "["}, 421),
        ({"Sec-Fetch-Site": "cross-site"}, 403),
        ({"Sec-Fetch-Site": "same-site"}, 403),
        ({"Origin": "http://evil.example"}, 403),
        ({"Origin": "http://localhost:9999"}, 403),
        ({"Origin": "null"}, 403),
        ({"Origin": "http://["}, 403),
        ({"Sec-Fetch-Site": "same-origin", "Origin": "http://127.0.0.1:8000"}, 200),
        ({"Sec-Fetch-Site": "none"}, 200),
        ({"Host": "localhost:8000"}, 200),
        ({"Host": "[::1]:8000"}, 200),
    ],
)
def test_hosts_and_origins(client: TestClient, headers: dict[str, str], status: int) -> None:
    answer = client.get("/api/models", headers=headers)
    if status == 200:
        assert answer.status_code == 200
    else:
        assert_refused(answer, status)


@pytest.mark.parametrize(
    "header", ["", "127.0.0.1/x", "evil@127.0.0.1", "127.0.0.1:8000:1", "127.0.0.1 x", "[::1"]
)
def test_hosts_that_are_none(header: str) -> None:
    assert not host_allowed(header, Settings())


def test_nobody_writes_lines_into_the_log(client: TestClient, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO")
    for headers in ({}, {"Host": "evil.example"}):
        assert client.get("/api/pairs/x%0a2026 INFO forged/y%1b[31m", headers=headers).status_code in (421, 422)
    assert "forged" in caplog.text
    assert not [
        record for record in caplog.records if "\n" in record.getMessage() or "\x1b" in record.getMessage()
    ]


def test_names_that_the_operator_allows() -> None:
    assert host_allowed("lab.example:80", Settings(allowed_hosts=("Lab.example",)))
    assert host_allowed("192.168.0.7", Settings(host="0.0.0.0"))
    assert not host_allowed("evil.example", Settings(host="0.0.0.0"))


def test_every_answer_has_the_security_headers(client: TestClient) -> None:
    for path in ("/", "/static/main.js", "/api/models", "/api/nothing", "/api/openapi.json"):
        answer = client.get(path)
        for name, value in HEADERS.items():
            assert answer.headers[name] == value
        assert "access-control-allow-origin" not in answer.headers
        assert "unsafe" not in answer.headers["content-security-policy"]
    assert client.get("/api/models").headers["cache-control"] == "no-store"


def test_the_session_cookie_is_for_this_site_only(client: TestClient) -> None:
    cookie = client.post("/api/pictures", content=DONKEY.read_bytes()).headers["set-cookie"]
    assert "HttpOnly" in cookie
    assert "samesite=strict" in cookie.lower()


def test_a_token_that_the_server_did_not_make_is_not_taken_over(client: TestClient) -> None:
    client.cookies.set("chmnet-session", "chosen-by-somebody-else")
    given = client.post("/api/pictures", content=picture_file(seed=20)).headers["set-cookie"]
    assert "chosen-by-somebody-else" not in given


def test_only_what_is_kept_needs_a_session(client: TestClient) -> None:
    sessions = client.app.state.service.sessions  # type: ignore[attr-defined]
    before = len(sessions)
    first, second = client.get("/api/examples").json()["pairs"][0]
    for path in (f"/api/pairs/{first}/{second}", "/api/models", f"/api/propagations/{'0' * 32}"):
        assert "set-cookie" not in client.get(path).headers
    assert len(sessions) == before


# ---------------------------------------------------------------- pictures


@pytest.mark.parametrize(
    ("data", "status", "words"),
    [
        (b"", 400, "no body"),
        (b"hello", 415, "accepted type"),
        (b"<svg xmlns='http://www.w3.org/2000/svg'/>", 415, "accepted type"),
        (DONKEY.read_bytes()[:5000], 422, "cannot be read"),
        (b"\x89PNG\r\n\x1a\nnonsense", 422, ""),
        (b"BM" + bytes(100), 422, ""),
        (b"GIF89a" + bytes(5), 422, ""),
        (b"\xff\xd8\xff" + bytes(50), 422, ""),
        (b"RIFF....WEBPnonsense", 422, ""),
        (png_header(20_000, 20_000), 413, "million pixels"),
        (png_header(0, 10), 422, ""),
        (png_header(2**31 - 1, 2**31 - 1), 413, "pixels"),
        (text_bomb(), 422, ""),
        (b"GIF89a" + struct.pack("<HHBBB", 65535, 65535, 0, 0, 0) + b";", 422, ""),
    ],
    ids=[
        "empty",
        "text",
        "svg",
        "cut",
        "png",
        "bmp",
        "gif",
        "jpeg",
        "webp",
        "large",
        "zero",
        "bomb",
        "notes",
        "screen",
    ],
)
def test_pictures_that_are_refused(client: TestClient, data: bytes, status: int, words: str) -> None:
    assert_refused(client.post("/api/pictures", content=data), status, words)
    assert client.get("/api/status").json()["waiting"] == 0


@pytest.mark.parametrize("kind", ["PNG", "JPEG", "WEBP", "GIF", "BMP"])
def test_pictures_that_are_accepted(client: TestClient, kind: str) -> None:
    answer = client.post("/api/pictures", content=picture_file(31, 17, kind=kind))
    assert (answer.json()["width"], answer.json()["height"]) == (31, 17)


def test_turned_pictures_are_seen_upright() -> None:
    exif = Image.Exif()
    exif[0x0112] = 6
    file = io.BytesIO()
    Image.new("RGB", (40, 20)).save(file, format="JPEG", exif=exif)
    assert decode_here(file.getvalue(), None, 100, 10_000).size == (40, 20)


def test_upload_size(limited: Limited) -> None:
    client = limited(upload_bytes=1000, body_bytes=1000)
    assert_refused(client.post("/api/pictures", content=bytes(1001)), 413, "larger than")
    assert_refused(client.post("/api/pictures", content=bytes(4000)), 413, "more than")

    def pieces():  # type: ignore[no-untyped-def]
        yield from (bytes(500) for _ in range(20))

    assert_refused(client.post("/api/pictures", content=pieces()), 413, "larger than")
    files = {"source": picture_file()[:1001], "target": b"1"}
    assert_refused(client.post("/api/match", files=files), 413, "source is larger")
    assert_refused(client.get("/api/models", headers={"Content-Length": "x"}), 400, "Content-Length")


def test_bodies_of_all_clients_together(limited: Limited) -> None:
    client = limited(bodies_bytes=2000)
    assert_refused(client.post("/api/pictures", content=bytes(2001)), 503, "being sent at once")
    assert client.app.state.service.bodies.bytes == 0  # type: ignore[attr-defined]
    assert_refused(client.post("/api/pictures", content=bytes(1999)), 415)


def test_bodies_that_do_not_come() -> None:
    async def receive() -> dict[str, object]:
        await asyncio.sleep(60)
        return {}

    async def gone() -> dict[str, object]:
        return {"type": "http.disconnect"}

    async def read(source: Callable[[], Awaitable[dict[str, object]]]) -> None:
        request = Request({"type": "http", "method": "POST", "headers": []}, source)  # type: ignore[arg-type]
        with Bodies(Limits(body_seconds=0.01)).reading(request, 100) as body:
            await body.read()

    async def drop_by_drop() -> dict[str, object]:
        await asyncio.sleep(0.004)
        return {"type": "http.request", "body": b"x", "more_body": True}

    with pytest.raises(WebError, match="not received in time"):
        asyncio.run(read(receive))
    with pytest.raises(WebError, match="not received in time"):
        asyncio.run(read(drop_by_drop))  # never silent for long, but far too slow
    with pytest.raises(WebError, match="before its body was complete"):
        asyncio.run(read(gone))


def test_slow_decoding_ends_and_the_next_picture_is_read() -> None:
    decoder = Decoder(seconds=0.01, pixels=10_000)  # the child needs longer to start
    try:
        with pytest.raises(WebError, match=r"longer than 0\.01 seconds"):
            decoder.decode(picture_file(), side=10)
        decoder.seconds = 60
        assert decoder.decode(picture_file(), side=10).picture.size == (10, 8)
        assert decoder._child is not None
        decoder._child.kill()  # as if the system had ended it
        decoder._child.wait()
        assert decoder.decode(picture_file(), (3, 5)).picture.size == (5, 3)
    finally:
        decoder.close()


def test_refusals_say_the_whole_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    decoder = Decoder(seconds=60, pixels=20)
    sentence = "the picture cannot be read as a picture: one cause; another"
    try:
        with pytest.raises(WebError, match=r"^the picture has more than 2e-05 million pixels$") as large:
            decoder.decode(picture_file(), side=10)
        assert (large.value.status, large.value.what_to_do) == (413, "make it smaller")
        answer = {"error": sentence, "reason": "broken-picture"}
        monkeypatch.setattr("chmnet.web.uploads._ask", lambda *arguments: (answer, b""))
        with pytest.raises(WebError, match=f"^{sentence}$"):
            decoder.decode(picture_file(), side=10)
    finally:
        decoder.close()


def test_decoder_answers_one_after_the_other() -> None:
    orders = io.BytesIO()
    for data in (picture_file(), b"nonsense"):
        orders.write(b'{"length": %d, "size": null, "side": 8, "pixels": 10000}\n' % len(data) + data)
    orders.seek(0)
    answers = io.BytesIO()
    answer_all(orders, answers)
    first, rest = answers.getvalue().split(b"\n", 1)
    assert b'"shape": [6, 8]' in first
    assert b'"reason": "type-not-accepted"' in rest[6 * 8 * 3 :]


# ---------------------------------------------------------------- sessions


def test_pictures_belong_to_their_session(client: TestClient) -> None:
    mine = load(client, picture_file(seed=9))
    assert client.get(f"/api/pairs/{mine}/{mine}").status_code == 200
    client.cookies.clear()
    assert_refused(client.get(f"/api/pairs/{mine}/{mine}"), 404, "no such picture")


def test_forget(client: TestClient) -> None:
    service = client.app.state.service  # type: ignore[attr-defined]
    mine = load(client, picture_file(seed=10))
    client.get(f"/api/pairs/{mine}/{mine}")
    before = service.features.nbytes, service.results.nbytes
    assert client.delete("/api/session").status_code == 204
    assert_refused(client.get(f"/api/pairs/{mine}/{mine}"), 404)
    assert service.features.nbytes < before[0]
    assert service.results.nbytes < before[1]


def test_one_shot_matches_leave_nothing(client: TestClient) -> None:
    service = client.app.state.service  # type: ignore[attr-defined]
    before = service.features.nbytes, service.results.nbytes, len(service.sessions)
    files = {"source": picture_file(seed=11), "target": picture_file(seed=12)}
    assert client.post("/api/match", files=files).status_code == 200
    assert (service.features.nbytes, service.results.nbytes, len(service.sessions)) == before


def test_small_files_count_with_the_pixels_kept_of_them(limited: Limited) -> None:
    client = limited(session_bytes=2**19)  # one picture at the network's size takes 225 kB
    for seed in range(2):
        load(client, picture_file(4, 4, seed=seed))
    assert_refused(client.post("/api/pictures", content=picture_file(4, 4, seed=3)), 413, "at most")


def test_what_is_computed_for_a_session_that_has_ended_goes_at_once(client: TestClient) -> None:
    service = client.app.state.service  # type: ignore[attr-defined]
    mine = load(client, picture_file(seed=21))
    token = client.cookies["chmnet-session"]
    picture = service.sessions.find(token).pictures[mine]
    before = service.features.nbytes, service.results.nbytes
    service.sessions.end(token)  # while its pair waits for the network
    service.match_now(Pair(picture, picture, "chmnet-lite"))
    assert (service.features.nbytes, service.results.nbytes) == before


def test_many_clients_open_sessions_at_once(client: TestClient, monkeypatch: pytest.MonkeyPatch) -> None:
    """Sessions are swept while others are opened; each client gets a session and its picture."""

    class Slow(OrderedDict[str, Session]):
        def values(self):  # type: ignore[no-untyped-def]
            for value in super().values():
                time.sleep(0.001)  # time for other threads, if there are any, to change it
                yield value

    sessions = client.app.state.service.sessions  # type: ignore[attr-defined]
    monkeypatch.setattr(sessions, "_sessions", Slow())

    def load_example(number: int) -> tuple[int, str]:
        answer = client.post("/api/pictures", content=DONKEY.read_bytes(), headers={"Cookie": f"none={number}"})
        return answer.status_code, answer.headers.get("set-cookie", "")

    with ThreadPoolExecutor(8) as threads:
        answers = list(threads.map(load_example, range(32)))
    assert {status for status, _ in answers} == {201}
    assert len({cookie for _, cookie in answers}) == len(sessions)


def test_threads_may_share_sessions() -> None:
    """Opening, sweeping and making room at once, with threads that change after a few steps."""
    sessions = Sessions(Limits(sessions=10_000))
    before = sys.getswitchinterval()

    def use(number: int) -> None:
        for turn in range(100):
            session = sessions.open("")
            session.pictures[str(number)] = StoredPicture(b"x", (1, 1), lambda: Image.new("RGB", (1, 1)))
            sessions.check_room(session, 1)
            if turn % 2:
                sessions.end(session.token)

    try:
        sys.setswitchinterval(1e-6)
        with ThreadPoolExecutor(8) as threads:
            list(threads.map(use, range(8)))
    finally:
        sys.setswitchinterval(before)
    assert len(sessions) == 8 * 50


def test_a_model_file_that_cannot_be_loaded_is_told_without_its_path(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    file = tmp_path / "broken.safetensors"
    file.write_bytes(b"nonsense")
    shelf = Models(offers({"mine": file}), 1)
    with pytest.raises(WebError, match="the model mine cannot be loaded") as refusal:
        shelf.take("mine")
    assert str(tmp_path) not in str(answer(refusal.value).body)
    assert str(tmp_path) in caplog.text


def test_a_session_keeps_so_many_pictures(limited: Limited) -> None:
    client = limited(session_pictures=2)
    for seed in range(2):
        load(client, picture_file(seed=seed))
    load(client, picture_file(seed=1))  # known already
    assert_refused(client.post("/api/pictures", content=picture_file(seed=3)), 413, "at most 2 pictures")


def test_sessions_end_in_time_and_when_memory_is_short() -> None:
    now, ended = [0.0], []
    sessions = Sessions(
        Limits(session_seconds=100, sessions=2, picture_bytes=10, session_bytes=20), ended.append, lambda: now[0]
    )
    first, second = sessions.open(""), sessions.open("")
    with pytest.raises(WebError, match="too many sessions"):
        sessions.open("")
    with pytest.raises(WebError, match="memory for pictures is full"):
        sessions.check_room(second, 11)
    now[0] = 61.0
    sessions.open(second.token)
    third = sessions.open("")  # takes the place of the one that is idle
    assert ended == [first.token]
    now[0] = 162.0
    sessions.sweep()
    assert ended == [first.token, second.token, third.token]
    with pytest.raises(WebError, match="at most"):
        sessions.check_room(sessions.open(""), 21)


def test_limits_must_be_positive() -> None:
    with pytest.raises(InputError, match="the limit queue must be above 0, got 0"):
        Limits(queue=0)
