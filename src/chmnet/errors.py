"""The errors chmnet raises: every message says what came, what was expected and what to do.

The command line prints the message of any :class:`ChmnetError` as one sentence and ends with code 2.
"""


class ChmnetError(Exception):
    """Base of every error that chmnet raises on purpose."""


class InputError(ChmnetError, ValueError):
    """An argument, tensor, picture or point that cannot be used.

    Args:
        message: one sentence.
        reason: a word for programs, where they need to tell errors apart: ``"no-such-file"``, ``"not-a-picture"``,
            ``"broken-picture"`` or ``"too-large"``; else empty.

    Example:
        >>> InputError("cat.png is not a picture", reason="not-a-picture").reason
        'not-a-picture'
    """

    def __init__(self, message: str, reason: str = "") -> None:
        super().__init__(message, reason)
        self.reason = reason

    def __str__(self) -> str:
        return str(self.args[0])


class ConfigError(ChmnetError, ValueError):
    """A configuration with an unknown key, a wrong type or a value out of range."""


class WeightsError(ChmnetError):
    """A weight file that is missing, broken, foreign or does not fit the model."""


class BackendError(ChmnetError):
    """A back-end that is unknown, or that cannot run the call it was asked for."""
