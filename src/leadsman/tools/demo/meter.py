"""A simulated power meter behind a real pseudo-terminal. It answers, sends garbage and disappears."""

import contextlib
import math
import random
import threading
import time

from leadsman.testing.pty import PtyDevice


class Meter:
    """Answers each line it is asked with its power in watts. Starts with ``with``."""

    def __init__(self) -> None:
        self.device = PtyDevice()
        self.babbling = False
        """While true it answers with garbage, as through a loose wire."""
        self._stopped = threading.Event()
        self._plugged = threading.Lock()
        self._thread = threading.Thread(target=self._run, name="simulated meter", daemon=True)

    def __enter__(self) -> "Meter":
        self.device.plug()
        self._thread.start()
        return self

    def __exit__(self, *exc_info: object) -> None:
        self._stopped.set()
        self._thread.join(1.0)
        self.device.__exit__()

    def unplug(self) -> None:
        """Disappear."""
        with self._plugged:
            self.device.unplug()

    def plug(self) -> None:
        """Come back."""
        with self._plugged:
            self.device.plug()

    def _run(self) -> None:
        started = time.monotonic()
        while not self._stopped.wait(0.01):
            with self._plugged, contextlib.suppress(OSError, TimeoutError):
                if self.device.receive():
                    watts = 600 + 400 * math.sin((time.monotonic() - started) / 15) + random.gauss(0, 20)
                    self.device.send(
                        random.randbytes(24) + b"\n" if self.babbling else b"%.1f W\n" % watts, timeout=0.2
                    )
