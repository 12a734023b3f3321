"""The JSON of the HTTP API."""

from typing import Annotated, Literal

from pydantic import BaseModel, Field, FiniteFloat

from chmnet.web.shelf import DEFAULT_MODEL


class StatusAnswer(BaseModel):
    """Whether the server runs, and how busy it is."""

    version: str
    waiting: int = Field(description="Requests that wait for the network now.")
    queue: int = Field(description="How many may wait; beyond it requests are answered with 503.")
    upload_bytes: int
    pixels: int
    session_seconds: float
    types: list[str] = Field(description="Accepted picture types.")


class ModelAnswer(BaseModel):
    """One model of the menu."""

    name: str
    title: str
    description: str
    default: bool
    dimensions: str | None = Field(description="`4d-4d` or `6d-4d`; null for a file that is not loaded yet.")
    kernel: str | None = Field(description="Kernel type of the votes: psi, iso or full; null without votes.")
    scales: bool | None = Field(description="Whether the first vote runs over scales.")


class PictureAnswer(BaseModel):
    """A picture that the server knows."""

    id: str = Field(description="Names the picture in further requests of this session.")
    width: int
    height: int
    title: str | None = None
    url: str | None = Field(None, description="Where an example's file is.")


class ExamplesAnswer(BaseModel):
    """Pictures to try, and which go together."""

    pictures: list[PictureAnswer]
    pairs: list[tuple[str, str]]


class MatchRow(BaseModel):
    """A point of the source, where it lies in the target, and how far that can be trusted (0 … 1)."""

    source: tuple[float, float]
    target: tuple[float, float]
    confidence: float
    scales: tuple[float, float] | None = Field(None, description="Winning scales of source and target.")


class MatchAnswer(BaseModel):
    """What matching two pictures found. Points are (x, y) in pixels, sizes are (height, width)."""

    model: str
    source_size: tuple[int, int]
    target_size: tuple[int, int]
    milliseconds: float | None = Field(description="What the network took; null: the result was known.")
    matches: list[MatchRow]


class LabelledPicture(BaseModel):
    """A picture whose points are known."""

    picture: Annotated[str, Field(pattern="^[0-9a-f]{32}$")]
    points: list[tuple[FiniteFloat, FiniteFloat] | None] = Field(
        min_length=1, max_length=500, description="The same ones in every picture; null: not to be seen in it."
    )


class PropagationRequest(BaseModel):
    """Pictures with their points, and the pictures to find them in."""

    sources: list[LabelledPicture] = Field(min_length=1, max_length=20)
    targets: list[Annotated[str, Field(pattern="^[0-9a-f]{32}$")]] = Field(min_length=1, max_length=500)
    model: str = Field(DEFAULT_MODEL, max_length=200)


class PropagatedPicture(BaseModel):
    """Where the points lie in one of the pictures."""

    picture: str
    points: list[tuple[float, float] | None] = Field(description="null: no source shows it.")
    confidences: list[float]
    doubtful: list[bool] = Field(description="Whether a person should look: unsure, or outside the picture.")
    score: float = Field(description="Mean confidence of the points.")


class PropagationAnswer(BaseModel):
    """How far a propagation is."""

    id: str
    state: Literal["running", "done", "cancelled", "failed"]
    error: str | None
    done: int
    total: int
    pictures: list[PropagatedPicture]
