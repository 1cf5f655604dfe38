"""Changes the log by the settings: levels by logger and by device, and a file with rotation."""

import contextlib
import logging
import os
import stat
import sys
from collections.abc import Callable, Mapping
from logging.handlers import RotatingFileHandler
from pathlib import Path
from typing import NamedTuple

from leadsman.core.monitoring.log_format import Journal, JournalHandler, Json, TextFormatter
from leadsman.core.monitoring.log_output import OutputHandler
from leadsman.core.settings.devices import closest
from leadsman.core.settings.sections import LogSettings
from leadsman.core.text import describe, log_fields
from leadsman.errors import InvalidValue

OWN_LOGGER = "leadsman"


class Levels(NamedTuple):
    """The least level of the records that are shown. Pure."""

    own: int
    """Of the loggers of leadsman that have no level of their own."""
    others: int
    """The same, of all other loggers."""
    loggers: Mapping[str, int]
    """By the name of a logger; it holds for the loggers below it, too."""
    devices: Mapping[str, int]
    """By the name of a device, or a pattern. It holds before that of the logger."""

    def of(self, logger: str, device: str | None) -> int:
        """The least level of a record of this logger, about this device."""
        if device is not None and (key := closest(self.devices, device)) is not None:
            return self.devices[key]
        name = logger
        while name:
            if name in self.loggers:
                return self.loggers[name]
            name = name.rpartition(".")[0]
        return self.own if logger.split(".")[0] == OWN_LOGGER else self.others

    @property
    def least(self) -> int:
        """The least level of any record of leadsman."""
        return min([self.own, *self.devices.values(), *self._below(OWN_LOGGER)])

    def _below(self, name: str) -> list[int]:
        return [level for each, level in self.loggers.items() if each.split(".")[0] == name]


class LevelFilter(logging.Filter):
    """Passes the records that `Levels` shows."""

    def __init__(self, levels: Levels) -> None:
        super().__init__()
        self.levels = levels

    def filter(self, record: logging.LogRecord) -> bool:
        """Whether a record is shown."""
        fields = getattr(record, "fields", None)  # a library may have such an attribute of its own
        device = fields.get("device") if isinstance(fields, dict) else None
        return record.levelno >= self.levels.of(record.name, device)


class _NoLock(contextlib.nullcontext[None]):
    """In the place of the lock of a handler."""

    def acquire(self) -> bool:
        return True

    def release(self) -> None:
        pass


class RotatedFile(RotatingFileHandler):
    """A file with rotation. One that cannot be written is reported once, and tried again with each line. One that
    cannot be rotated grows, and is tried again once it has grown by as much as it may have.

    One thread writes it. The others leave it alone, also as the process ends: it may hang for as long as its disk.

    Args:
        report: is given a line about what is wrong with the file.
    """

    failure = ""
    """Why the last line could not be written; empty if it was."""
    reported = False
    """Whether that was reported."""
    refused_at = 0
    """Bytes of the file when it could not be rotated; 0 if it could."""

    def __init__(self, path: Path, max_bytes: int, backups: int, report: Callable[[str], object]) -> None:
        super().__init__(path, "a", max_bytes, backups, encoding="utf-8")
        self._report = report

    def createLock(self) -> None:  # noqa: N802  # the name of the library
        """No lock: `logging.shutdown` would wait for a thread that hangs."""
        self.lock = _NoLock()  # type: ignore[assignment]  # it is only acquired and released

    def write(self, line: str) -> None:
        """Write a line."""
        self.handle(logging.makeLogRecord({"msg": line.removesuffix("\n")}))

    def end(self) -> None:
        """Close the file."""
        super().close()

    def close(self) -> None:
        """The library closes all handlers at its end; each line is flushed by then, or hangs."""

    def shouldRollover(self, record: logging.LogRecord) -> bool:  # noqa: N802  # the name of the library
        """Whether a new file is begun before this line."""
        if not super().shouldRollover(record) or self.stream is None:
            return False
        return not self.refused_at or self.stream.tell() >= self.refused_at + self.maxBytes

    def doRollover(self) -> None:  # noqa: N802  # the name of the library
        """Begin a new file. If the directory does not let the app do that, go on with the old one."""
        reported = bool(self.refused_at)
        try:
            super().doRollover()
            self.refused_at = 0
        except OSError as error:
            self.stream = self._open()
            self.refused_at = self.stream.tell()
            if not reported:
                self._report(
                    f"the log file {self.baseFilename} cannot be rotated, and grows: {describe(error)}; let the app"
                    " write the directory"
                )

    def emit(self, record: logging.LogRecord) -> None:
        """Write one line."""
        self.failure = ""
        super().emit(record)  # sets it if it fails
        failed, reported = bool(self.failure), self.reported
        self.reported = failed
        if failed and not reported:
            self._report(f"the log file {self.baseFilename} cannot be written: {self.failure}")

    def handleError(self, record: logging.LogRecord) -> None:  # noqa: N802  # the name of the library
        """Remember it: a traceback for each line would fill what is left of the disk."""
        error = sys.exc_info()[1]
        self.failure = "an unknown error" if error is None else describe(error)


class LogFile(OutputHandler):
    """The log in a file."""

    def __init__(self, file: RotatedFile) -> None:
        super().__init__(file.write, file.end)
        self.file = file


def change_log(settings: LogSettings) -> None:
    """Change the log of this process by the settings. Where the program has set up logging itself, nothing changes.

    Raises:
        InvalidValue: the file cannot be opened.
    """
    logger, root = logging.getLogger(OWN_LOGGER), logging.getLogger()
    own, others = _undo(logger, root)
    handlers = [each for each in logger.handlers if _is_ours(each)]
    if not handlers:
        logger.warning(
            "The program has set up logging itself, so the section log of the settings changes nothing",
            extra=log_fields("log of the program"),
        )
        return
    if settings.path is not None:
        handlers.append(_file_for(settings, handlers[0]))
        logger.addHandler(handlers[-1])
        root.addHandler(handlers[-1])
    levels = Levels(
        own,
        others,
        {name: logging.getLevelName(level) for name, level in settings.levels.items()},
        {name: logging.getLevelName(level) for name, level in settings.devices.items()},
    )
    for name, level in levels.loggers.items():
        if name != OWN_LOGGER:
            logging.getLogger(name).setLevel(level)
    logger.setLevel(levels.least)
    for handler in handlers:
        handler.addFilter(LevelFilter(levels))


def _is_ours(handler: logging.Handler) -> bool:
    return isinstance(handler, JournalHandler) or isinstance(handler.formatter, TextFormatter | Json | Journal)


def _undo(logger: logging.Logger, root: logging.Logger) -> tuple[int, int]:
    """Take away what an earlier app of this process changed. Returns the levels that were there before."""
    own, others = logger.level, root.level
    for handler in [*logger.handlers]:
        for each in [*handler.filters]:
            if isinstance(each, LevelFilter):
                own, others = each.levels.own, each.levels.others
                handler.removeFilter(each)
        if isinstance(handler, LogFile):
            logger.removeHandler(handler)
            root.removeHandler(handler)
            handler.close()
    logger.setLevel(own)
    return own, others


def _check_regular(path: Path) -> None:
    """See that what is there is a regular file: a pipe keeps the start waiting, and nothing else can be rotated."""
    with contextlib.suppress(FileNotFoundError):
        if not stat.S_ISREG(os.stat(path).st_mode):
            raise OSError("it is no regular file")


def _file_for(settings: LogSettings, beside: logging.Handler) -> LogFile:
    """The handler of the file, whose faults are in the log beside it."""
    assert settings.path is not None

    def report(line: str) -> None:
        beside.handle(logging.LogRecord(OWN_LOGGER, logging.ERROR, __file__, 0, "%s", (line,), None))

    try:
        os.makedirs(settings.path.parent, exist_ok=True)
        _check_regular(settings.path)
        handler = LogFile(RotatedFile(settings.path, settings.max_bytes, settings.backups, report))
    except (OSError, ValueError) as error:  # such as a path with a null byte
        raise InvalidValue(
            f"log.path: {settings.path} cannot be opened: {describe(error)}; write a path where the app may write"
        ) from None
    json = isinstance(beside.formatter, Json)
    handler.setFormatter(Json() if json else TextFormatter(colour=False))
    return handler
