"""To which topic filters the app is subscribed at each broker is remembered over a restart, since the broker remembers
it, too. The next version of the app may want others, and a message for two filters comes twice (MQTT 5 §3.3.4)."""

import asyncio
import contextlib
import json
import threading
from collections.abc import Collection, Mapping
from pathlib import Path

from leadsman.errors import DeviceUnavailable
from leadsman.mqtt.answers import object_in
from leadsman.storage import files
from leadsman.wiring.core import Core
from leadsman.wiring.plan import NoHome

FILE = "subscriptions.json"
"""In the state directory."""
LARGEST = 1024 * 1024
"""Bytes of the file that are read; an app has some ten filters of 50 bytes."""


def join(core: Core) -> None:
    """Begin with the subscriptions of the last run, and write down those of this one."""
    with contextlib.suppress(NoHome):  # the part for readings reports it
        core.link.record = SubscriptionFile(core.plan.state_directory / FILE, core.plan.client_id)


class SubscriptionFile:
    """The file. See `leadsman.mqtt.link.SubscriptionRecord`. It is not written while no thread is free for that.

    Args:
        path: of the file.
        client_id: that of the app. A broker has a session for each client id.
    """

    def __init__(self, path: Path, client_id: str) -> None:
        self._path = path
        self._client_id = client_id
        self._turn = threading.Lock()
        self._written = False
        """Whether this run has written what it is subscribed to."""
        self.known: Mapping[str, Collection[str]] = {}
        with contextlib.suppress(OSError):
            found = object_in(files.read(path, LARGEST)) or {}
            listed = found.get("subscriptions")
            if found.get("client_id") == client_id and isinstance(listed, dict):
                self.known = {broker: frozenset(each) for broker, each in listed.items() if _is_list_of_text(each)}

    async def forget(self, broker: str) -> None:
        """See `SubscriptionRecord`."""
        self.known = {each: filters for each, filters in self.known.items() if each != broker}
        with contextlib.suppress(DeviceUnavailable):
            await asyncio.get_running_loop().run_in_executor(None, self._write)

    def keep(self, broker: str, filters: Collection[str]) -> None:
        """See `SubscriptionRecord`. The first time in a run they are written as they are. Later more than there are may
        stay listed: the next run ends such a subscription, which is none."""
        known = self.known.get(broker, frozenset())
        if known == filters or (self._written and set(filters) <= set(known)):
            self._written = True
            return
        self._written = True
        self.known = {**self.known, broker: frozenset(filters)}
        with contextlib.suppress(DeviceUnavailable):
            asyncio.get_running_loop().run_in_executor(None, self._write)

    def _write(self) -> None:
        """Write what is known now. Losing the file costs a session, so it is not synced, and a disk that takes nothing
        is left to those parts that need it."""
        with self._turn, contextlib.suppress(OSError):
            listed = {broker: sorted(filters) for broker, filters in self.known.items()}
            data = json.dumps({"client_id": self._client_id, "subscriptions": listed}).encode()
            self._path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            files.replace(self._path, self._path.with_suffix(".tmp"), data, sync=False)


def _is_list_of_text(value: object) -> bool:
    return isinstance(value, list) and all(isinstance(each, str) for each in value)
