"""Errors of a wire, as fields of a session, and raised again from them. Pure."""

from leadsman import errors
from leadsman.resilience.failure import RetryRequested
from leadsman.sessions.session import Fields

_KNOWN: dict[str, type[Exception]] = {
    kind.__name__: kind
    for kind in (
        errors.DeviceTimeout,
        errors.DeviceUnavailable,
        errors.GarbledData,
        errors.InvalidValue,
        errors.NotInstalled,
        errors.PermanentError,
        errors.TransientError,
        OSError,
        RuntimeError,
        TimeoutError,
        TypeError,
        ValueError,
    )
}
"""The errors that a wire may raise, by name."""


def fields_of(error: Exception) -> Fields:
    """What is kept of an error."""
    found: dict[str, object] = {"error": type(error).__name__, "message": str(error)}
    number = getattr(error, "errno", None)
    if type(number) is int:
        found["errno"] = number
    if isinstance(error, RetryRequested):
        found |= {"seconds": error.delay, "message": error.reason or ""}
    if isinstance(properties := getattr(error, "retry_properties", None), dict):
        found["properties"] = {key: value for key, value in properties.items() if isinstance(value, str | int)}
    return found


def error_of(fields: Fields) -> Exception:
    """The error that is raised again. One of a class that is not known here is a `RuntimeError`, as a bug of a library
    is."""
    name, message, number, delay = (fields.get(key) for key in ("error", "message", "errno", "seconds"))
    text = str(message)
    if name == "RetryRequested":
        return RetryRequested(delay if isinstance(delay, int | float) and 0 <= delay < 1e9 else None, text)
    if name == "ReplyTooLarge":
        from leadsman.adapters.caldav.backend import ReplyTooLarge

        return ReplyTooLarge(text)
    if type(number) is int:
        return OSError(number, text.removeprefix(f"[Errno {number}] "))
    error = _KNOWN.get(str(name), RuntimeError)(text)
    if isinstance(properties := fields.get("properties"), dict) and isinstance(error, errors.DeviceError):
        error.retry_properties = properties  # type: ignore[attr-defined]  # what a policy may ask for
    return error
