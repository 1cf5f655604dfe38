"""To which topic filters the app is subscribed at each broker is remembered over a restart, since the broker remembers
it, too. The next version of the app may want others, and a message for two filters comes twice (MQTT 5 §3.3.4)."""

import asyncio
import contextlib
import json
import os
import threading
from collections.abc import Callable, Collection, Mapping
from pathlib import Path

from leadsman.core.mqtt.answers import object_in
from leadsman.core.storage import files
from leadsman.core.wiring.core import Core
from leadsman.core.wiring.plan import NoHome
from leadsman.errors import DeviceUnavailable

FILE = "subscriptions.json"
"""In the state directory."""
MAX_FILE_BYTES = 1024 * 1024
"""Bytes of the file that are read; an app has some ten filters of 50 bytes."""


def join(core: Core) -> None:
    """Begin with the subscriptions of the last run, and write down those of this one."""
    with contextlib.suppress(NoHome):  # the part for readings reports it
        directory = core.plan.state_directory
        client_id, state = core.plan.identity.client_id, core.state_directory
        if state.newer is None:
            core.link.remember(SubscriptionFile(directory / FILE, client_id, state.occupy))


class SubscriptionFile:
    """The file. See `leadsman.core.mqtt.link.SubscriptionRecord`. It is not written while no thread is free for that.

    Args:
        path: of the file.
        client_id: that of the app. A broker has a session for each client id.
        take: called before the file is written, in a thread: it makes the directory.
    """

    def __init__(self, path: Path, client_id: str, take: Callable[[], object]) -> None:
        self._path = path
        self._client_id = client_id
        self._take = take
        self._turn = threading.Lock()
        self._writing: asyncio.Future[None] | None = None
        """The thread that writes. There is one at most: a disk may hang."""
        self._written = False
        """Whether this run has written what it is subscribed to."""
        self.known: Mapping[str, Collection[str]] = {}
        if not os.access(path.parent, os.W_OK):  # it may be that the last run could not change it either
            return
        with contextlib.suppress(OSError):
            found = object_in(files.read(path, MAX_FILE_BYTES)) or {}
            listed = found.get("subscriptions")
            if found.get("client_id") == client_id and isinstance(listed, dict):
                self.known = {broker: frozenset(each) for broker, each in listed.items() if _is_list_of_text(each)}

    async def forget(self, broker: str) -> None:
        """See `SubscriptionRecord`."""
        writing = self._know({each: filters for each, filters in self.known.items() if each != broker})
        if writing is not None:
            await asyncio.shield(writing)

    def keep(self, broker: str, filters: Collection[str]) -> None:
        """See `SubscriptionRecord`. The first time in a run they are written as they are. Later more than there are may
        stay listed: the next run ends such a subscription, which does no harm."""
        known = self.known.get(broker, frozenset())
        if known == filters or (self._written and set(filters) <= set(known)):
            self._written = True
            return
        self._written = True
        self._know({**self.known, broker: frozenset(filters)})

    def _know(self, known: Mapping[str, Collection[str]]) -> "asyncio.Future[None] | None":
        """Have this written. Returns the thread that does so; None if there is none."""
        with self._turn:
            self.known = known
            if self._writing is None:
                with contextlib.suppress(DeviceUnavailable):
                    self._writing = asyncio.get_running_loop().run_in_executor(None, self._write)
            return self._writing

    def _write(self) -> None:
        """Write until what is known is written."""
        written = None
        while True:
            with self._turn:
                if written is self.known:
                    self._writing = None
                    return
                written = self.known
            self._replace(written)

    def _replace(self, known: Mapping[str, Collection[str]]) -> None:
        """Write what is known. Losing the file costs a session, so it is not synced, and it is removed where a disk
        takes nothing: what it says may be wrong now."""
        listed = {broker: sorted(filters) for broker, filters in known.items()}
        data = json.dumps({"client_id": self._client_id, "subscriptions": listed}).encode()
        try:
            self._take()
            files.replace(self._path, self._path.with_suffix(".tmp"), data, sync=False)
        except OSError:
            with contextlib.suppress(OSError):
                self._path.unlink(missing_ok=True)


def _is_list_of_text(value: object) -> bool:
    return isinstance(value, list) and all(isinstance(each, str) for each in value)
