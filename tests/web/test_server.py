"""Clients that are too slow, against a server with little patience; and what that server uses of uvicorn."""

import asyncio
import inspect
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol
from uvicorn.server import ServerState

from chmnet.web import server

REQUEST = b"GET / HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n"
ANSWER_BYTES = 12_000_000


async def large_answer(scope: Any, receive: Any, send: Any) -> None:
    await send(
        {"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"%d" % ANSWER_BYTES)]}
    )
    await send({"type": "http.response.body", "body": bytes(ANSWER_BYTES)})


Talk = Callable[[asyncio.StreamReader, asyncio.StreamWriter, ServerState], Awaitable[None]]


def talk(client: Talk, monkeypatch: pytest.MonkeyPatch, answer_seconds: float = 10) -> None:
    """One client at a server whose deadlines are a fraction of a second."""
    monkeypatch.setattr(server, "REQUEST_SECONDS", 0.3)
    monkeypatch.setattr(server, "ANSWER_SECONDS", answer_seconds)

    async def main() -> None:
        config = uvicorn.Config(large_answer, http=server.PatientProtocol, lifespan="off", log_config=None)
        config.load()
        state = ServerState()
        loop = asyncio.get_running_loop()
        make = lambda: server.PatientProtocol(config=config, server_state=state, app_state={})  # noqa: E731
        listening = await loop.create_server(make, "127.0.0.1", 0)
        reader, writer = await asyncio.open_connection(*listening.sockets[0].getsockname())
        try:
            await asyncio.wait_for(client(reader, writer, state), 10)
        finally:
            writer.transport.abort()
            listening.close()
            await asyncio.sleep(0.01)

    asyncio.run(main())


async def ended(reader: asyncio.StreamReader) -> bool:
    try:
        return await reader.read(1) == b""
    except ConnectionResetError:
        return True


def test_silence_is_cut_off(monkeypatch: pytest.MonkeyPatch) -> None:
    async def client(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, state: ServerState) -> None:
        assert await ended(reader)

    talk(client, monkeypatch)


def test_headers_that_drip_are_cut_off_also_after_a_first_request(monkeypatch: pytest.MonkeyPatch) -> None:
    async def client(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, state: ServerState) -> None:
        writer.write(REQUEST)
        await reader.readuntil(b"\r\n\r\n")
        await reader.readexactly(ANSWER_BYTES)
        for _ in range(40):
            writer.write(b"G" if state.total_requests else b"")
            await asyncio.sleep(0.02)
            if writer.transport.is_closing():
                return
        assert await ended(reader)

    talk(client, monkeypatch)


def test_a_patient_reader_gets_all_of_it(monkeypatch: pytest.MonkeyPatch) -> None:
    async def client(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, state: ServerState) -> None:
        writer.write(REQUEST)
        assert b"200 OK" in await reader.readuntil(b"\r\n\r\n")
        assert len(await reader.readexactly(ANSWER_BYTES)) == ANSWER_BYTES

    talk(client, monkeypatch)


def test_who_does_not_read_the_answer_does_not_keep_it_in_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    async def client(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, state: ServerState) -> None:
        writer.transport.pause_reading()  # type: ignore[attr-defined]
        writer.write(REQUEST)
        await asyncio.sleep(0.1)
        assert state.connections
        while state.connections:
            await asyncio.sleep(0.02)

    talk(client, monkeypatch, answer_seconds=0.2)


# ---------------------------------------------------------------- uvicorn


def complain(what: str) -> str:
    return f"uvicorn {uvicorn.__version__} has changed: {what}; web/server.py builds on it and must follow"


def test_uvicorn_has_what_the_server_builds_on() -> None:
    for owner, name, arguments in (
        (H11Protocol, "connection_made", ["transport"]),
        (H11Protocol, "connection_lost", ["exc"]),
        (H11Protocol, "data_received", ["data"]),
        (H11Protocol, "pause_writing", []),
        (H11Protocol, "resume_writing", []),
        (uvicorn.Server, "startup", ["sockets"]),
        (uvicorn.Server, "handle_exit", ["sig", "frame"]),
    ):
        method = getattr(owner, name, None)
        assert method is not None, complain(f"{owner.__name__} has no {name}")
        found = list(inspect.signature(method).parameters)[1:]
        assert found == arguments, complain(f"{owner.__name__}.{name} takes {found}, not {arguments}")
    fresh = vars(uvicorn.Server(uvicorn.Config(large_answer)))
    for name in ("should_exit", "force_exit"):
        assert fresh.get(name) is False, complain(f"Server.{name} is {fresh.get(name)!r} at first, not False")


def test_uvicorn_keeps_the_state_of_a_connection_where_the_deadlines_look(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[tuple[bool, bool]] = []

    class Watched(server.PatientProtocol):
        def data_received(self, data: bytes) -> None:
            assert self.cycle is None, complain("a connection has a cycle before its first request")
            super().data_received(data)
            seen.append((self.loop.is_running(), self.cycle.response_complete))
            self.transport.abort()

    monkeypatch.setattr(server, "PatientProtocol", Watched)

    async def client(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, state: ServerState) -> None:
        writer.write(REQUEST)
        assert await ended(reader)

    talk(client, monkeypatch)
    assert seen == [(True, False)], complain("H11Protocol has no loop, transport or cycle.response_complete")
