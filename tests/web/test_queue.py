"""The queue before the network: busy, stopping, and clients that have gone."""

import asyncio
import threading
from collections.abc import Callable

import pytest
from fastapi.testclient import TestClient

from chmnet.web.answers import WebError, answer
from chmnet.web.queue import WorkQueue

from .conftest import assert_refused, picture_file

Limited = Callable[..., TestClient]


def test_beyond_the_queue_is_busy() -> None:
    async def main() -> None:
        queue, gate = WorkQueue("test", 2), threading.Event()
        waiting = [asyncio.create_task(queue.run(gate.wait)) for _ in range(2)]
        await asyncio.sleep(0.01)
        with pytest.raises(WebError, match="busy") as refusal:
            await queue.run(gate.wait)
        assert refusal.value.status == 503
        assert answer(refusal.value).headers["retry-after"] == "1"
        gate.set()
        assert await asyncio.gather(*waiting) == [True, True]
        await asyncio.sleep(0.01)
        assert queue.waiting == 0
        assert await queue.run(lambda: 5) == 5
        queue.close()

    asyncio.run(main())


class GoneClient:
    """A request whose client does not wait."""

    async def is_disconnected(self) -> bool:
        return True


def test_work_of_clients_that_have_gone_is_dropped() -> None:
    async def main() -> None:
        queue, gate, done = WorkQueue("test", 5), threading.Event(), []
        first = asyncio.create_task(queue.run(gate.wait))
        await asyncio.sleep(0.01)
        with pytest.raises(WebError, match="disconnected"):
            await queue.run(lambda: done.append(1), GoneClient())  # type: ignore[arg-type]
        cancelled = asyncio.create_task(queue.run(lambda: done.append(2)))
        await asyncio.sleep(0.01)
        cancelled.cancel()
        await asyncio.wait({cancelled})
        gate.set()
        await first
        await queue.run(lambda: None)
        assert done == []
        queue.close()

    asyncio.run(main())


def test_stopping_tells_those_who_wait() -> None:
    async def main() -> None:
        queue, gate = WorkQueue("test", 5), threading.Event()
        first = asyncio.create_task(queue.run(gate.wait))
        second = asyncio.create_task(queue.run(gate.wait))
        await asyncio.sleep(0.01)
        queue.stop()
        with pytest.raises(WebError, match="stopping"):
            await second
        with pytest.raises(WebError, match="stopping"):
            await queue.run(gate.wait)
        gate.set()
        assert await first  # what was at work is answered
        queue.close()

    asyncio.run(main())


def test_a_busy_server_says_so(limited: Limited, monkeypatch: pytest.MonkeyPatch) -> None:
    client = limited(queue=1)
    queue = client.app.state.service.decoding  # type: ignore[attr-defined]
    monkeypatch.setattr(queue, "_waiting", 1)
    answer = client.post("/api/pictures", content=picture_file())
    assert_refused(answer, 503, "busy")
    assert answer.headers["retry-after"] == "1"
