"""Which version of MQTT each broker spoke last is remembered over a restart, where it is the old one: an old broker
that leaves a CONNECT of version 5 unanswered costs seconds at each start otherwise."""

import asyncio
import contextlib
import json
import threading
from collections.abc import Mapping
from pathlib import Path

from leadsman.events import Event, LinkUp
from leadsman.mqtt.answers import object_in
from leadsman.mqtt.connection_state import V311
from leadsman.storage import files
from leadsman.wiring.core import Core
from leadsman.wiring.plan import NoHome

FILE = "brokers.json"
"""In the state directory."""
LARGEST = 64 * 1024
"""Bytes of the file that are read; an app has a few brokers."""


def join(core: Core) -> None:
    """Begin with the versions of the last run, and write down those of this one."""
    with contextlib.suppress(NoHome):  # the part for readings reports it
        versions = BrokerVersions(core, core.plan.state_directory / FILE)
        core.link.recall(versions.known)
        core.link.on_old_version = versions.add_current
        core.environment.events.subscribe(versions.observe, readings=False)


class BrokerVersions:
    """The file.

    Args:
        core: the app.
        path: of the file.
    """

    def __init__(self, core: Core, path: Path) -> None:
        self._core = core
        self._path = path
        self.known: Mapping[str, str] = {}
        """The brokers that spoke the old version last, by address."""
        with contextlib.suppress(OSError):
            found = object_in(files.read(path, LARGEST)) or {}
            self.known = {broker: V311 for broker, version in found.items() if version == V311}
        self._written: Mapping[str, str] = self.known
        self._writing = False
        self._turn = threading.Lock()

    def observe(self, event: Event) -> None:
        """A broker has accepted a connection, in one of the versions."""
        if not isinstance(event, LinkUp):
            return
        link = self._core.link
        if event.protocol != V311 or link.broker.protocol == V311:
            self._keep({broker: version for broker, version in self.known.items() if broker != str(link.broker)})
        elif not link.version_is_guessed:  # else it may only be starting, and a short run would not find out
            self.add_current()

    def add_current(self) -> None:
        """The broker of the connection speaks the old version for certain."""
        self._keep({**self.known, str(self._core.link.broker): V311})

    def _keep(self, known: Mapping[str, str]) -> None:
        if known == self.known:
            return
        with self._turn:
            self.known, before, self._writing = known, self._writing, True
        if not before:  # else the thread that writes goes on with it
            asyncio.get_running_loop().run_in_executor(None, self._write)

    def _write(self) -> None:
        """Write until what is known is written. One thread does so at a time: of two, the older answer may stay."""
        while True:
            with self._turn:
                if self._written is self.known:
                    self._writing = False
                    return
                self._written = self.known
            self._replace(json.dumps(self._written).encode())

    def _replace(self, data: bytes) -> None:
        """Losing the file costs seconds at the next start, so it is not synced, and a disk that takes nothing is left
        to those parts that need it."""
        with contextlib.suppress(OSError):
            self._path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            files.replace(self._path, self._path.with_suffix(".tmp"), data, sync=False)
