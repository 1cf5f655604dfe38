"""What a device remembers over a restart: one small JSON file each, written seldom and never by halves.

A flash card wears out by writes, so a changed store is written at most once per `FLOOR` and once at the end. A file is
written beside its place and renamed over it (`rename(2)` is atomic), so a cut of the power leaves the old one or the new
one. What cannot be read is kept aside and told; what cannot be written is told once, and the app goes on.
"""

import asyncio
import contextlib
import json
import logging
import os
import threading
from collections.abc import Iterator, Mapping, MutableMapping
from pathlib import Path
from typing import Any
from urllib.parse import quote

from leadsman.errors import InvalidType
from leadsman.reading import plain
from leadsman.timers import Timers
from leadsman.wording import told
from leadsman.workers import Worker

FLOOR = 60.0
"""Seconds between two writes of a store, at the least: 1,440 a day at most, of one block each."""
LARGEST = 1024 * 1024
"""Bytes of a store; whatever is larger wants a database."""

logger = logging.getLogger("leadsman")


def state_directory(app: str, environment: Mapping[str, str] = os.environ) -> Path:
    """Where an app keeps what must survive it: systemd's ``$STATE_DIRECTORY``, else below ``$XDG_STATE_HOME``."""
    if given := environment.get("STATE_DIRECTORY", "").split(":")[0]:
        return Path(given)
    home = environment.get("XDG_STATE_HOME") or Path.home() / ".local" / "state"
    return Path(home) / "leadsman" / quote(app, safe=" ")


class Store(MutableMapping[str, Any]):
    """A dict of one device that survives a restart. Keys are text, values what JSON can carry.

    It is written when a key was set or deleted; a change inside a value is noticed at the end of the app at the latest,
    so set the key again after one.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._lock = threading.Lock()  # plain handlers live in threads
        self._writing = threading.Lock()
        self._values: dict[str, Any] = _read(path)
        self._written = _encoded(self._values)
        self._told = False
        self.changed = False
        """Whether a key was set or deleted since it was written."""

    def __getitem__(self, key: str) -> Any:
        return self._values[key]

    def __setitem__(self, key: str, value: Any) -> None:
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
        """Write it now, if it differs from what is written. Blocks: ``await asyncio.to_thread(context.store.save)``. Never raises,
        neither for want of a disk nor for what a handler put into a value: it is told once, and tried again the next time."""
        with self._writing:
            self._save()

    def _save(self) -> None:
        try:
            with self._lock:
                self.changed = False
                data = _encoded(self._values)
            if data == self._written:
                return
            if len(data) > LARGEST:
                raise OSError(f"it holds {len(data)} bytes, and {LARGEST} are allowed")
            _write(self._path, data)
        except (OSError, ValueError, TypeError, RuntimeError) as error:
            self.changed = True
            if not self._told:
                logger.warning("%s cannot be written: %s; it is kept in memory only", self._path, told(error))
            self._told = True
        else:
            self._written, self._told = data, False


class Stores:
    """The stores of one app, made as they are asked for."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._stores: dict[str, Store] = {}

    def of(self, device: str) -> Store:
        """The store of a device. Reads a small file the first time."""
        store = self._stores.get(device)
        if store is None:
            made = Store(self._directory / f"{quote(device, safe=' ')}.json")
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


def _encoded(values: dict[str, Any]) -> bytes:
    return json.dumps(values, ensure_ascii=False, allow_nan=False, indent=1).encode()


def _read(path: Path) -> dict[str, Any]:
    try:
        values = json.loads(path.read_bytes())
        if isinstance(values, dict):
            _encoded(values)  # NaN and half surrogate pairs are read, and could not be written again
            return values
        reason = "it holds no JSON object"
    except FileNotFoundError:
        return {}
    except (ValueError, RecursionError) as error:
        reason = told(error)
    except OSError as error:
        logger.warning("%s cannot be read: %s; starting with an empty store", path, told(error))
        return {}
    aside = path.with_suffix(".broken")
    with contextlib.suppress(OSError):
        path.replace(aside)
    logger.warning("%s is broken (%s); kept as %s, starting with an empty store", path, reason, aside.name)
    return {}


def _write(path: Path, data: bytes) -> None:
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    beside = path.with_suffix(".tmp")  # always the same, so that a process that is killed leaves one at the most
    handle = os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | getattr(os, "O_NOFOLLOW", 0), 0o600)
    with os.fdopen(handle, "wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
    beside.replace(path)
