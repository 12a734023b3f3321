"""Long work in small steps: points of labelled pictures carried to many others; it can be ended at any time."""

import asyncio
import logging
import secrets
from dataclasses import dataclass, field
from typing import Literal, NamedTuple

import numpy as np

from chmnet.annotation.records import Moved
from chmnet.annotation.vote import join_votes
from chmnet.web.errors import WebError
from chmnet.web.service import Pair, Service
from chmnet.web.sessions import StoredPicture

logger = logging.getLogger(__name__)

BUSY_SECONDS = 0.2
"""How long a step waits before it asks again for a place in the queue."""

KEPT_JOBS = 2
"""Finished jobs of one session that can still be asked about."""

State = Literal["running", "done", "cancelled", "failed"]


class Labelled(NamedTuple):
    """A picture whose points are known."""

    picture: StoredPicture
    points: np.ndarray
    """``n`` rows (x, y); NaN where a point is not to be seen."""


@dataclass
class Job:
    """One propagation: what is done, and what is to be done."""

    id: str
    owner: str
    sources: list[Labelled]
    targets: list[StoredPicture]
    model: str
    state: State = "running"
    error: str | None = None
    found: list[Moved] = field(default_factory=list)
    task: "asyncio.Task[None] | None" = None


class Jobs:
    """All jobs; each belongs to a session and ends with it. Used by the event loop only.

    Args:
        service: does the work; every step waits in the same queue as everyone else's requests.
    """

    def __init__(self, service: Service) -> None:
        self.service = service
        self._jobs: dict[str, Job] = {}

    def start(self, owner: str, sources: list[Labelled], targets: list[StoredPicture], model: str) -> Job:
        """Begin to carry the points of all sources to each of the targets.

        Raises:
            WebError: the session has a running job already.
        """
        mine = [job for job in self._jobs.values() if job.owner == owner]
        if any(job.state == "running" for job in mine):
            raise WebError(409, "a propagation of this session runs already", "wait for it, or DELETE it first")
        for old in mine[: max(0, len(mine) - KEPT_JOBS + 1)]:
            del self._jobs[old.id]
        job = Job(secrets.token_hex(16), owner, sources, targets, model)
        self._jobs[job.id] = job
        job.task = asyncio.get_running_loop().create_task(self._work(job))
        return job

    def find(self, owner: str, key: str) -> Job:
        """A job of a session.

        Raises:
            WebError: it has no such job.
        """
        job = self._jobs.get(key)
        if job is None or job.owner != owner:
            raise WebError(404, "this session has no such propagation (any more)", "start it again")
        return job

    def cancel(self, job: Job) -> None:
        """End a job after the step at hand; what it found stays."""
        if job.state == "running":
            job.state = "cancelled"
            if job.task is not None:
                job.task.cancel()

    def drop(self, owner: str) -> None:
        """Forget all jobs of a session."""
        for job in [job for job in self._jobs.values() if job.owner == owner]:
            self.cancel(job)
            del self._jobs[job.id]

    def close(self) -> None:
        """End all jobs."""
        for job in self._jobs.values():
            self.cancel(job)

    async def _work(self, job: Job) -> None:
        try:
            for target in job.targets:
                job.found.append(await self._find(job, target))
            job.state = "done"
        except WebError as error:
            job.state, job.error = "failed", error.error
        except Exception:
            logger.exception("a propagation failed")
            job.state, job.error = "failed", "something went wrong inside the server"

    async def _find(self, job: Job, target: StoredPicture) -> Moved:
        """What all sources together say of one target; the vote is that of ``chmnet propagate``."""
        votes = [
            await self._vote(Pair(source.picture, target, job.model), source.points) for source in job.sources
        ]
        points, confidence = (np.stack(values) for values in zip(*votes, strict=True))
        return Moved("", *join_votes(points, confidence, target.size))

    async def _vote(self, pair: Pair, points: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        queue = self.service.queue
        while queue.waiting >= queue.length and not queue.stopping:
            await asyncio.sleep(BUSY_SECONDS)
        seen = ~np.isnan(points).any(axis=1)
        matches = await queue.run(lambda: self.service.match_now(pair).result.transfer(points[seen]))
        found, confidence = np.full(points.shape, np.nan), np.zeros(len(points))
        found[seen], confidence[seen] = matches.target, matches.confidence
        return found, confidence
