"""The store of a device: a small JSON file that survives restarts, is written seldom, and is never half written.

Writes wear out flash cards, so a changed store is written at most once per `FLOOR`, and once at the end. A new file is
written beside the old one and renamed over it (`rename(2)` is atomic), so a power failure leaves the old or the new
one. A damaged file is kept aside. A file that cannot be read or written at the moment is left as it is, reported once,
and tried again.
"""

import asyncio
import json
import logging
import threading
import time
from collections.abc import Iterator, MutableMapping
from pathlib import Path
from typing import Any
from urllib.parse import quote

from leadsman.core.loop.threads import Worker
from leadsman.core.loop.timers import Timers
from leadsman.core.readings.reading import JsonObject, plain
from leadsman.core.storage import files
from leadsman.core.storage.directory import StateDirectory
from leadsman.core.text import describe, log_fields
from leadsman.errors import InvalidType

FLOOR = 60.0
"""Seconds between two writes of a store, at least: 1,440 a day at most, of its size each."""
MAX_STORE_BYTES = 1024 * 1024
"""Bytes of a store; whatever is larger wants a database."""
MAX_NAME_CHARS = 200
"""Characters of the name of a file without its suffix; most file systems allow 255 bytes (``NAME_MAX``)."""
EMPTY = b"{}"
_ENCODER = json.JSONEncoder(ensure_ascii=False, allow_nan=False, indent=1)

logger = logging.getLogger("leadsman")


class Store(MutableMapping[str, Any]):
    """A dict of one device that survives a restart. Keys are text, values what JSON can represent.

    It is written after a key was set or deleted. A change inside a value is only noticed at the end of the app, so set
    the key again after such a change.

    Args:
        path: the file.
        directory: decides whether this process may write, and reports failures.
    """

    def __init__(self, path: Path, directory: StateDirectory) -> None:
        self._path = path
        self._directory = directory
        self._lock = threading.Lock()  # plain handlers live in threads
        self._writing = threading.Lock()
        self._values: JsonObject = {}
        self._written = EMPTY
        self._unread = False
        self._failed = False
        self.changed = False
        """Whether a key was set or deleted since it was written."""
        try:
            self._values, self._written = self._read()
        except OSError as error:  # perhaps it can be read later; until then it is not written over
            self._unread = self._failed = True
            self._directory.report(path, error)

    def __getitem__(self, key: str) -> Any:
        return self._values[key]

    def __setitem__(self, key: str, value: object) -> None:
        if not isinstance(key, str):
            raise InvalidType(f"a store's key is {key!r}; write text")
        checked = plain(value, key)
        with self._lock:
            self._values[key] = checked
            self.changed = True

    def __delitem__(self, key: str) -> None:
        with self._lock:
            del self._values[key]
            self.changed = True

    def __iter__(self) -> Iterator[str]:
        return iter(list(self._values))

    def __len__(self) -> int:
        return len(self._values)

    def __repr__(self) -> str:
        return f"Store({self._values!r})"

    def save(self) -> None:
        """Write it now, if it differs from what is written. Blocks: ``await asyncio.to_thread(context.store.save)``.
        Never raises, neither for want of a disk nor for what a handler put into a value: it is reported once, and tried
        again the next time."""
        with self._writing:
            try:
                self._save()
            except (OSError, ValueError, TypeError, RuntimeError) as error:
                self.changed = True
                if not self._failed:
                    self._directory.report(self._path, error)
                self._failed = True

    def _save(self) -> None:
        if not self._directory.may_write():
            return
        if self._unread:
            self._read_late()
        with self._lock:
            self.changed = False
            values = dict(self._values)
        data = _encode(values)
        removed = self._written != EMPTY and not self._path.exists()
        if removed:
            logger.warning(
                "%s was removed while the app ran; it is written again",
                self._path,
                extra=log_fields("store removed", file=str(self._path)),
            )
        if removed or data != self._written:
            _write(self._path, data)
            self._written = data
        if self._failed:
            self._failed = False
            self._directory.report(self._path, None)

    def _read(self) -> tuple[JsonObject, bytes]:
        if self._directory.newer is not None:
            raise OSError(self._directory.newer)
        return _read(self._path, keep_aside=not self._directory.foreign)

    def _read_late(self) -> None:
        """Read a file that could not be read at first. What was set since then wins."""
        values, self._written = self._read()
        with self._lock:
            self._values = values | self._values
        self._unread = False


class Stores:
    """The stores of one app, made as they are asked for, in its state directory."""

    def __init__(self, directory: StateDirectory) -> None:
        self._directory = directory
        self._stores: dict[str, Store] = {}

    def of(self, device: str) -> Store:
        """The store of a device. Reads a small file the first time."""
        store = self._stores.get(device)
        if store is None:
            made = Store(self._directory.path / f"{_file_name(device)}.json", self._directory)
            store = self._stores.setdefault(device, made)  # a plain handler in a thread may have been quicker
        return store

    @property
    def used(self) -> bool:
        """Whether any store was asked for."""
        return bool(self._stores)

    @property
    def changed(self) -> bool:
        """Whether there is anything to write."""
        return any(store.changed for store in self._stores.values())

    def save(self) -> None:
        """Write what differs. Blocks."""
        for store in list(self._stores.values()):
            store.save()


class Writer:
    """Writes the stores that changed, every `FLOOR` seconds and at the end, in a thread. An alarm in the heap."""

    def __init__(self, stores: Stores, timers: Timers) -> None:
        self._stores = stores
        self._timers = timers
        self._worker = Worker("stores")
        timers.add(timers.origin + FLOOR, self)

    def ring(self, now: float) -> None:
        """Write, if there is anything to write."""
        self._timers.add(now + FLOOR, self)
        if self._stores.changed:
            self._worker.submit(self._stores.save)

    async def finish(self) -> None:
        """Write what is left."""
        if self._stores.used:
            await asyncio.wrap_future(self._worker.submit(self._stores.save))
        self._worker.stop()


def _file_name(device: str) -> str:
    """The name of the file of a device, without its suffix. The name of a device may have three times as many
    characters in it as a file system allows, since each byte of an umlaut becomes ``%C3``; its end is then a checksum.
    """
    name = quote(device, safe=" ")
    if len(name) <= MAX_NAME_CHARS:
        return name
    from hashlib import sha256  # such a name is rare

    checksum = sha256(device.encode()).hexdigest()[:32]
    return f"{name[: MAX_NAME_CHARS - len(checksum) - 1]}-{checksum}"


def _encode(values: JsonObject) -> bytes:
    """JSON for people. Ends at `MAX_STORE_BYTES`: a thread that encodes for seconds leaves little of the time to the
    others."""
    parts, size = list[str](), 0
    for part in _ENCODER.iterencode(values):
        parts.append(part)
        size += len(part)
        if size > MAX_STORE_BYTES:
            raise OSError(f"it is larger than {MAX_STORE_BYTES} bytes; keep less in it, or use a database")
    return "".join(parts).encode()


def _read(path: Path, *, keep_aside: bool) -> tuple[JsonObject, bytes]:
    """The document in a file, and its bytes. One that is broken or too large is kept aside.

    Raises:
        OSError: it cannot be read just now.
    """
    try:
        if keep_aside:
            files.set_aside(path)
        data = files.read(path, MAX_STORE_BYTES + 1)
        if len(data) > MAX_STORE_BYTES:
            raise ValueError(f"it is larger than {MAX_STORE_BYTES} bytes")
        values = json.loads(data)
        if isinstance(values, dict):
            json.dumps(values, ensure_ascii=False, allow_nan=False).encode()  # else it could not be written again
            return values, data
        reason = "it does not contain a JSON object"
    except FileNotFoundError:
        return {}, EMPTY
    except (ValueError, RecursionError) as error:
        reason = describe(error)
    kept = ""
    if keep_aside:
        aside = files.name_aside(path, time.time())
        path.rename(aside)
        files.prune_aside(path)
        kept = f"it is kept as {aside.name}, and "
    logger.warning(
        "%s is damaged (%s); %sthe store starts empty",
        path,
        reason,
        kept,
        extra=log_fields("store damaged", file=str(path)),
    )
    return {}, EMPTY


def _write(path: Path, data: bytes) -> None:
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    beside = path.with_suffix(".tmp")  # always the same, so that a process that is killed leaves one at most
    files.replace(path, beside, data, sync=True)
