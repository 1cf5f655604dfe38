"""Log formats: text with colour for terminals, JSON for collectors, and priorities or fields for the journal.

Whatever a device puts into a message, it forges no record: control characters are escaped, passwords are hidden, and
each further line of a record, as those of a traceback, begins with `MARK`.
"""

import json
import logging
import os
import re
import socket
import sys
import threading
from collections.abc import Mapping
from types import FunctionType, TracebackType
from typing import TYPE_CHECKING, TextIO

from leadsman.core.loop.clock import rfc3339
from leadsman.core.loop.output import descriptor_of, flush_stream, to_descriptor
from leadsman.core.monitoring.log_output import OutputHandler
from leadsman.core.text import clean, without_secret_lines
from leadsman.core.text.suggestion import suggestion
from leadsman.errors import InvalidValue

if TYPE_CHECKING:
    from sys import UnraisableHookArgs

LEVELS = ("DEBUG", "INFO", "WARNING", "ERROR", "CRITICAL")
FORMATS = ("text", "json", "journal")
MARK = "  | "
"""The beginning of a line that belongs to the record above it. No record begins so."""
MAX_LINES = 100
"""Lines of one record: the first half and the last half are kept."""
_COLOURS = {"DEBUG": "2", "WARNING": "33", "ERROR": "31", "CRITICAL": "1;31"}
"""SGR parameters (ECMA-48 §8.3.117): faint, yellow, red, bold red."""
SOCKET = "/run/systemd/journal/socket"
"""Where journald takes records (systemd-journald.service(8))."""
PREFIX = "LEADSMAN_"
"""Begins the names of our own fields, so that they differ from those of the journal."""
MAX_FIELD_NAME_CHARS = 64
"""Characters of the name of a field (journal-fields(7))."""
_PRIORITIES = {"DEBUG": 7, "INFO": 6, "WARNING": 4, "ERROR": 3, "CRITICAL": 2}
"""Of syslog(3)."""


class LinesFormatter(logging.Formatter):
    """The lines of a record alone."""

    def format(self, record: logging.LogRecord) -> str:
        """Format one record."""
        return f"\n{MARK}".join(_lines(self, record))


class TextFormatter(LinesFormatter):
    """One line for each record, with its time. The level is coloured on a terminal."""

    def __init__(self, *, colour: bool) -> None:
        super().__init__()
        self._colour = colour

    def format(self, record: logging.LogRecord) -> str:
        """Format one record."""
        at, level = self.formatTime(record, "%Y-%m-%d %H:%M:%S"), record.levelname
        if self._colour and level in _COLOURS:
            level = f"\x1b[{_COLOURS[level]}m{level}\x1b[0m"
        return f"{at} {level} {super().format(record)}"


class Json(logging.Formatter):
    """One JSON object a line. It contains the fields of the record, such as ``event``, ``device`` and
    ``error_type``."""

    def format(self, record: logging.LogRecord) -> str:
        """Format one record."""
        document = {"at": rfc3339(record.created), "level": record.levelname.lower(), "logger": record.name}
        first, *rest = _lines(self, record)
        fields = getattr(record, "fields", {})
        document |= {name: clean(value) if isinstance(value, str) else value for name, value in fields.items()}
        document["message"] = first
        if rest:
            document["detail"] = "\n".join(rest)
        return json.dumps(document)


class Journal(LinesFormatter):
    """Lines with their priority and without the time, which the journal adds."""

    def format(self, record: logging.LogRecord) -> str:
        """Format one record."""
        return "\n".join(f"<{priority_of(record)}>{line}" for line in super().format(record).split("\n"))


def priority_of(record: logging.LogRecord) -> int:
    """The priority of a record, as syslog(3) counts it."""
    return _PRIORITIES.get(record.levelname, 6)


def _lines(formatter: logging.Formatter, record: logging.LogRecord) -> list[str]:
    lines = without_secret_lines(logging.Formatter.format(formatter, record)).splitlines() or [""]
    if (more := len(lines) - MAX_LINES) > 0:
        half = MAX_LINES // 2
        lines = [*lines[:half], f"… {more:,} lines are left out …", *lines[-half:]]
    return [clean(line) for line in lines]


def field_name(name: str) -> str:
    """The name of one of our fields in the journal, which takes capital letters, digits and underscores."""
    return (PREFIX + re.sub("[^A-Z0-9_]", "_", name.upper()))[:MAX_FIELD_NAME_CHARS]


def entry(fields: Mapping[str, str]) -> bytes:
    """The datagram of a record. A text with several lines goes with its length before it."""
    parts = []
    for name, text in fields.items():
        value = text.encode(errors="backslashreplace")
        if b"\n" in value:
            parts.append(name.encode() + b"\n" + len(value).to_bytes(8, "little") + value + b"\n")
        else:
            parts.append(name.encode() + b"=" + value + b"\n")
    return b"".join(parts)


def _text(value: object) -> str:
    return clean(value) if isinstance(value, str) else json.dumps(value)


class JournalHandler(logging.Handler):
    """Sends records to journald with their fields, so that ``journalctl LEADSMAN_DEVICE=meter`` finds those of a
    device: a line on stderr has a priority, and no other field. A record is one datagram, see
    https://systemd.io/JOURNAL_NATIVE_PROTOCOL/.

    Args:
        path: the socket of journald.
        instead: gets a record that cannot be sent, because journald is away, or the record is larger than a datagram.
    """

    def __init__(self, path: str, instead: logging.Handler) -> None:
        super().__init__()
        self.setFormatter(LinesFormatter())
        self._path = path
        self._instead = instead
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._socket.setblocking(False)

    def emit(self, record: logging.LogRecord) -> None:
        """Send one record."""
        own = getattr(record, "fields", {})
        try:
            fields = {"MESSAGE": self.format(record), "PRIORITY": str(priority_of(record)), "LOGGER": record.name}
            fields |= {field_name(name): _text(value) for name, value in own.items()}
            self._socket.sendto(entry(fields), self._path)
        except Exception:  # stderr is left for what journald does not take, or cannot be written as a datagram
            self._instead.handle(record)

    def close(self) -> None:
        """Close the socket."""
        self._socket.close()
        super().close()


def log_to_stderr(level: str | None = None, kind: str | None = None) -> None:
    """Log to stderr, unless it is closed or the user has set up logging. Libraries log warnings and errors only.

    Args:
        level: None takes ``$LOG_LEVEL``, else INFO.
        kind: ``text``, ``json`` or ``journal``; None takes ``$LOG_FORMAT``, else the format that suits stderr.

    Raises:
        InvalidValue: there is no such level or format.
    """
    logger = logging.getLogger("leadsman")
    if logging.getLogger().handlers or logger.handlers or sys.stderr is None:
        return
    level = (level or os.environ.get("LOG_LEVEL") or "INFO").upper()
    if level not in LEVELS:
        raise InvalidValue(f"LOG_LEVEL is {level!r}; it must be DEBUG, INFO, WARNING, ERROR or CRITICAL")
    log_to(_handler(kind or os.environ.get("LOG_FORMAT"), sys.stderr, os.environ), level)


def log_to(handler: logging.Handler, level: str) -> None:
    """Have records of leadsman from a level on, those of libraries that are warnings or errors, and what Python would
    print by itself."""
    logger = logging.getLogger("leadsman")
    logger.addHandler(handler)
    logger.setLevel(level)
    logger.propagate = False
    logging.getLogger().addHandler(handler)  # libraries log in the same format, and set up none of their own
    _log_what_python_prints()


def _log_what_python_prints() -> None:
    """Python writes warnings, and exceptions that end a thread or the program, or that nobody can catch, to stderr as
    they are: they may have secrets, and lines that look like records. They are records from now on."""
    logging.captureWarnings(True)
    sys.excepthook = _on_end_of_program
    threading.excepthook = _on_end_of_thread
    sys.unraisablehook = _on_unraisable


def _on_end_of_program(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
    if issubclass(kind, KeyboardInterrupt):
        sys.__excepthook__(kind, error, trace)
    else:
        logging.getLogger("leadsman").critical("an exception ended the program", exc_info=(kind, error, trace))


def _on_end_of_thread(ended: threading.ExceptHookArgs) -> None:
    if ended.exc_value is None or issubclass(ended.exc_type, SystemExit):
        return
    name = "a thread" if ended.thread is None else f"the thread {ended.thread.name}"
    error = ended.exc_type, ended.exc_value, ended.exc_traceback
    logging.getLogger("leadsman").error("an exception ended %s", name, exc_info=error)


def _on_unraisable(unraisable: "UnraisableHookArgs") -> None:
    if unraisable.exc_value is None:
        return
    where = unraisable.err_msg or "an exception was ignored"
    error = unraisable.exc_type, unraisable.exc_value, unraisable.exc_traceback
    found = unraisable.object
    name = found.__qualname__ if isinstance(found, FunctionType) else type(found).__name__
    logging.getLogger("leadsman").error("%s: %s", where, name, exc_info=error)


def abandon_unwritable_streams() -> None:
    """Put /dev/null in the place of stdout and stderr if they cannot be written, because their reader has gone or does
    not read, or a disk is full.

    Otherwise the interpreter tries to write at its end, and waits for ever, or fails and exits with 120
    (`Py_FinalizeEx`) instead of the exit code.
    """
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name)
        if stream is None or stream.closed:
            continue
        try:
            error = flush_stream(stream)
        except TimeoutError:
            null = open(os.devnull, "w")  # noqa: SIM115  # until the end of the process
            setattr(sys, name, null)
            setattr(sys, f"__{name}__", null)
            continue
        if isinstance(error, OSError):
            handle = os.open(os.devnull, os.O_WRONLY)
            os.dup2(handle, stream.fileno())
            os.close(handle)


def _handler(
    kind: str | None, stream: TextIO, environment: Mapping[str, str], journal: str = SOCKET
) -> logging.Handler:
    """A handler that writes to a stream. Where that is the journal, records go there with their fields, and only those
    that journald does not take go to the stream."""
    handle = descriptor_of(stream)
    handler = logging.StreamHandler(stream) if handle is None else OutputHandler(to_descriptor(handle))
    handler.setFormatter(_formatter(kind, stream, environment))
    connected = isinstance(handler.formatter, Journal) and _format_for(stream, environment) == "journal"
    return JournalHandler(journal, handler) if connected and os.path.exists(journal) else handler


def _formatter(kind: str | None, stream: TextIO, environment: Mapping[str, str]) -> logging.Formatter:
    match kind or _format_for(stream, environment):
        case "text":
            return TextFormatter(colour=wants_colour(stream, environment))
        case "json":
            return Json()
        case "journal":
            return Journal()
    raise InvalidValue(f"LOG_FORMAT is {kind!r}; {suggestion(str(kind), FORMATS)}")


def _format_for(stream: TextIO, environment: Mapping[str, str]) -> str:
    """``journal`` if systemd connected the stream to the journal (systemd.exec(5), ``$JOURNAL_STREAM``), else
    ``text``."""
    try:
        status = os.fstat(stream.fileno())
    except (OSError, ValueError):  # it has no number, or is closed
        return "text"
    return "journal" if environment.get("JOURNAL_STREAM") == f"{status.st_dev}:{status.st_ino}" else "text"


def wants_colour(stream: TextIO, environment: Mapping[str, str]) -> bool:
    """Whether to use colour: on a terminal, unless ``NO_COLOR`` is set or the terminal has no colours."""
    return not environment.get("NO_COLOR") and environment.get("TERM") != "dumb" and stream.isatty()
