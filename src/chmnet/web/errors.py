"""The one error of the server."""

from chmnet.errors import ChmnetError


class WebError(ChmnetError):
    """A request that cannot be answered.

    Args:
        status: of HTTP.
        error: what happened, one sentence.
        what_to_do: what the person can do about it.
        retry_after: seconds after which to try again.
    """

    def __init__(self, status: int, error: str, what_to_do: str, retry_after: int | None = None) -> None:
        super().__init__(error)
        self.status = status
        self.error = error
        self.what_to_do = what_to_do
        self.retry_after = retry_after
