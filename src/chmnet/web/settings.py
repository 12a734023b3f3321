"""Limits of the server with their defaults, and what it offers."""

from dataclasses import dataclass, field
from pathlib import Path

from chmnet.errors import InputError


@dataclass(frozen=True)
class Limits:
    """Bounds that protect clients from each other's requests."""

    upload_bytes: int = 40 * 2**20
    """Largest picture file."""
    pixels: int = 100_000_000
    """Most pixels of a picture; refused from its header, before anything is decoded."""
    decode_seconds: float = 20.0
    """A picture that takes longer to decode is refused and its decoder ended."""
    session_seconds: float = 1800.0
    """Pictures of a session are deleted after this time without a request."""
    session_pictures: int = 200
    session_bytes: int = 256 * 2**20
    """Picture files that one session may keep."""
    sessions: int = 500
    picture_bytes: int = 768 * 2**20
    """Picture files of all sessions together."""
    feature_bytes: int = 256 * 2**20
    """Features kept for the next pair with the same picture."""
    result_bytes: int = 192 * 2**20
    """Results kept for the next question about the same pair."""
    connections: int = 400
    """Open connections; further ones get HTTP 503."""
    queue: int = 32
    """Requests that may wait for the network; further ones get HTTP 503."""
    loaded_models: int = 3
    body_bytes: int = 2**20
    """Largest request that is not a picture."""
    body_seconds: float = 30.0
    """How long to wait for the next piece of a request, and how far one may lag behind ``body_rate``."""
    body_rate: float = 50_000.0
    """Bytes a second at which a request must be sent."""
    bodies_bytes: int = 512 * 2**20
    """Requests of all clients that are being read or decoded."""
    points: int = 2000
    """Most points in one request."""

    def __post_init__(self) -> None:
        for name, value in vars(self).items():
            if not value > 0:
                raise InputError(f"the limit {name} must be above 0, got {value}")


@dataclass(frozen=True)
class Settings:
    """How one server runs.

    Args:
        host: address it is bound to; decides which ``Host`` headers are accepted.
        allowed_hosts: other host names under which it may be opened.
        examples: folder of example pictures, or ``None``.
        models: model files that the page offers besides, by the name shown.
        limits: see :class:`Limits`.
        device: where networks run; see :class:`chmnet.Matcher`.
    """

    host: str = "127.0.0.1"
    allowed_hosts: tuple[str, ...] = ()
    examples: Path | None = None
    models: dict[str, Path] = field(default_factory=dict)
    limits: Limits = field(default_factory=Limits)
    device: str = "auto"


def example_folder() -> Path | None:
    """The repository's example pictures, when chmnet runs from a checkout; they are not part of the package."""
    folder = Path(__file__).parents[3] / "examples"
    return folder if (folder / "README.md").is_file() else None
