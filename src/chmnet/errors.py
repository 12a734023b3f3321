"""The errors chmnet raises: every message says what came, what was expected and what to do.

The command line prints the message of any :class:`ChmnetError` as one sentence and ends with code 2.
"""


class ChmnetError(Exception):
    """Base of every error that chmnet raises on purpose."""


class InputError(ChmnetError, ValueError):
    """An argument, tensor, picture or point that cannot be used."""


class ConfigError(ChmnetError, ValueError):
    """A configuration with an unknown key, a wrong type or a value out of range."""


class WeightsError(ChmnetError):
    """A weight file that is missing, broken, foreign or does not fit the model."""


class BackendError(ChmnetError):
    """A back-end that is unknown, or that cannot run the call it was asked for."""
