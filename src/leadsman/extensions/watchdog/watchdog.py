"""Feeds systemd's watchdog and writes the health file for containers, as long as the event loop runs and some data is
fresh.

A running process does not prove that it works: an app may be up for days with a radio that hangs. So the watchdog is
fed, and ``fresh`` is true in the health file, only while at least one device is not stale, or all of them wait on
purpose. A device that waits is no sign of life for the others. An app whose only device is switched off is then
restarted now and then, once per `stale_after`. That is the price for never missing data for days.
"""

import contextlib
import json
import logging
import os
import socket
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Self

from leadsman.core.events import Event, LinkDown, LinkUp
from leadsman.core.loop.output import CLOSING
from leadsman.core.loop.threads import Worker
from leadsman.core.loop.timers import Timers
from leadsman.core.monitoring.health import OK, STARTING
from leadsman.core.monitoring.health_file import HEALTH_FILE, LAYOUT, PERIOD, health_file
from leadsman.core.monitoring.statuses import Statuses
from leadsman.core.mqtt.link import Link
from leadsman.core.storage import files
from leadsman.core.text import count_noun, describe, log_fields
from leadsman.errors import LeadsmanError

if TYPE_CHECKING:
    from leadsman.core.monitoring.document import HealthFile

logger = logging.getLogger("leadsman")


class HealthWriter:
    """Writes the health file in a thread, since its disk may not answer: the newest of what waits for that.

    Args:
        path: of the file.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._beside = path.with_name(f".{path.name}.{os.getpid()}")
        self._worker = Worker("the health file")
        self._lock = threading.Lock()
        self._next: HealthFile | None = None
        self._since: float | None = None  # when the write began that is under way
        self._failed = False

    def write(self, health: "HealthFile") -> None:
        """Replace the file, soon. That it cannot be written is logged once."""
        with self._lock:
            self._next, since = health, self._since
            if since is None:
                self._since = health["at"]
        if since is None:
            try:
                self._worker.submit(self._run)
            except LeadsmanError as error:  # the system gives no thread
                self._since = None
                self._report(error)
        elif health["at"] - since > health["period"]:
            self._report(TimeoutError("its disk does not answer"))

    def remove(self) -> None:
        """Remove the file after the writes before. Waits for that, `CLOSING` seconds at most."""
        with contextlib.suppress(OSError, TimeoutError, LeadsmanError):
            self._worker.submit(self._path.unlink, missing_ok=True).result(CLOSING)
        self._worker.stop()

    def _run(self) -> None:
        while True:
            with self._lock:
                health, self._next = self._next, None
                if health is None:
                    self._since = None
                    return
                self._since = health["at"]
            try:  # others may read the file
                data = json.dumps(health).encode()
                files.replace(self._path, self._beside, data, 0o644, sync=False)
                self._failed = False
            except Exception as error:  # the thread that ended with it would write no other health either
                self._report(error)

    def _report(self, error: Exception) -> None:
        failed, self._failed = self._failed, True
        if not failed:
            logger.warning(
                "The health file cannot be written: %s; set %s to a path that can be written",
                describe(error),
                HEALTH_FILE,
                extra=log_fields("health file failed", file=str(self._path), error_type=type(error).__name__),
            )


class Signs:
    """Where the service manager and a container look for signs of life."""

    def __init__(self, environment: Mapping[str, str]) -> None:
        self._notifier = Notifier.from_environment(environment)
        file = health_file(environment)
        self._file = None if file is None else HealthWriter(Path(file))
        watchdog = None if self._notifier is None else self._notifier.watchdog
        self.period = PERIOD if watchdog is None else min(PERIOD, watchdog / 2)
        """Seconds between two signs."""

    def close(self) -> None:
        """Remove the health file, and notify the manager no more."""
        if self._notifier is not None:
            self._notifier.close()
            self._notifier = None
        if self._file is not None:
            self._file.remove()
            self._file = None


class Watchdog(Signs):
    """Notifies the service manager and writes the health file. It is an alarm of `Timers`."""

    def __init__(self, environment: Mapping[str, str], statuses: Statuses, link: Link, timers: Timers) -> None:
        super().__init__(environment)
        self._statuses = statuses
        self._link = link
        self._timers = timers
        self._summary = ""

    def start(self) -> None:
        """The app is ready: notify the manager now, and again in each period."""
        if self._notifier is not None:
            self._notifier.send("READY=1")
        if self._notifier is not None or self._file is not None:
            self.ring(self._timers.origin)

    def ring(self, now: float) -> None:
        """Notify the manager and update the health file."""
        self._timers.add(now + self.period, self)
        fresh = self._show(now)
        if fresh and self._notifier is not None and self._notifier.watchdog is not None:
            self._notifier.send("WATCHDOG=1")

    def observe(self, event: Event) -> None:
        """Show at once that the connection to the broker begins or ends: a person looks just then."""
        if isinstance(event, LinkUp | LinkDown):
            self._show(event.at)

    def _show(self, now: float) -> bool:
        """Update ``STATUS=`` and the health file. Returns whether the app shows a sign of life."""
        fresh, summary = self.sign_of_life(now)
        if self._notifier is not None and summary != self._summary and self._notifier.send(f"STATUS={summary}"):
            self._summary = summary
        if self._file is not None:
            self._file.write({"layout": LAYOUT, "at": now, "period": self.period, "fresh": fresh, "words": summary})
        return fresh

    def sign_of_life(self, now: float) -> tuple[bool, str]:
        """Whether the app shows a sign of life (`Statuses.is_fresh`), and a summary of it in one line."""
        self._statuses.refresh(now)
        records, words = self._statuses.records, self._statuses.words
        jobs, troubled = self._statuses.jobs, self._statuses.troubled
        devices = sum(health.polled for name, health in records.items() if name not in jobs)  # they come and go
        bad = [
            name for name in troubled if words[name] not in (OK, STARTING) and name not in jobs and records[name].polled
        ]
        link = "connected" if self._link.up else f"no connection to the broker: {self._link.last_error or 'connecting'}"
        named = f" (not {', '.join(sorted(bad)[:3])}{' …' if len(bad) > 3 else ''})" if bad else ""
        count = (
            f"{devices - len(bad)} of {count_noun(devices, 'device')} ok{named}" if devices else "no devices to poll"
        )
        return self._statuses.is_fresh(now), f"{count}; {link}"

    def stop(self, *, for_good: bool = True) -> None:
        """Remove the health file, and notify the manager that the process ends if it does so `for_good`."""
        if self._notifier is not None and for_good:
            self._notifier.send("STOPPING=1")
        self.close()


# Notifies the service manager: sd_notify(3) without a library, one datagram at a time.


class Notifier:
    """Sends states to ``$NOTIFY_SOCKET``. It never raises, because the app runs without a manager too."""

    def __init__(self, address: str, watchdog: float | None = None) -> None:
        self.watchdog = watchdog
        """The longest time between two notifications, in seconds; None without a watchdog (sd_watchdog_enabled(3))."""
        self._address = "\0" + address[1:] if address.startswith("@") else address
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._socket.setblocking(False)
        self._owes_ready = False

    @classmethod
    def from_environment(cls, environment: Mapping[str, str] = os.environ) -> Self | None:
        """The notifier for the manager in the environment; None without one."""
        address = environment.get("NOTIFY_SOCKET", "")
        if address[:1] not in ("/", "@") or not hasattr(socket, "AF_UNIX"):
            return None
        usec, pid = environment.get("WATCHDOG_USEC", ""), environment.get("WATCHDOG_PID")
        ours = pid is None or pid == str(os.getpid())
        return cls(address, int(usec) / 1e6 if ours and usec.isdecimal() and int(usec) > 0 else None)

    def send(self, *states: str) -> bool:
        """Send states such as ``READY=1`` in one datagram. Returns whether the manager has it. One that reads nothing
        gets that the app is ready with the next states; the other ones are dropped."""
        if self._owes_ready and "READY=1" not in states:
            states = ("READY=1", *states)
        try:
            self._socket.sendto("\n".join(states).encode(), self._address)
        except OSError:
            self._owes_ready = "READY=1" in states
            return False
        self._owes_ready = False
        return True

    def close(self) -> None:
        """Close the socket."""
        self._socket.close()
