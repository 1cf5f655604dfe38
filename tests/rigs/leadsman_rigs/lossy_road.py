"""A road between two networks on this machine that loses packets: TCP itself sends them again.

The other network is a namespace of a thread. Two TUN devices are its ends, and a second thread carries the packets
between them and drops some. It needs Linux, root, ``/dev/net/tun`` and ``ip``; the kernel's netem is not needed.
"""

import contextlib
import ctypes
import fcntl
import os
import random
import select
import shutil
import struct
import subprocess
import threading
from concurrent.futures import ThreadPoolExecutor

CLONE_NEWNET = 0x40000000
"""unshare(2)."""
TUNSETIFF, IFF_TUN, IFF_NO_PI = 0x400454CA, 0x0001, 0x1000
"""Linux's if_tun.h."""
MAX_DATAGRAM_BYTES = 65536


class NoRoad(OSError):
    """This machine cannot make one."""


class LossyRoad:
    """Loses packets inside a ``with`` block. This process is at one end, and what runs by `there` at the other.

    Args:
        loss: the share of packets that are lost in each direction, 0 to 1. The attribute may be changed at any time.
        seed: of the dice.

    Raises:
        NoRoad: by the ``with`` block; the right, the device or the program is missing.
    """

    def __init__(self, loss, seed=0):
        self.loss = loss
        self.carried = self.lost = 0
        self._dice = random.Random(seed)
        number = os.getpid() % 250 + 1
        third = self._dice.randrange(1, 250)
        self.address = f"10.{number}.{third}.2"
        """The address of the other end, as seen from this one."""
        self.here = f"10.{number}.{third}.1"
        """The address of this end, as seen from the other one."""
        self._ends = []
        self._thread = None
        self._stop = os.pipe()
        self._inside = ThreadPoolExecutor(1)

    def __enter__(self):
        try:
            self._ends.append(self._end(self.here, self.address))
            self._inside.submit(self._enter).result()
        except (OSError, subprocess.CalledProcessError) as error:
            self.__exit__()
            raise NoRoad(f"no network can be made: {error}") from error
        self._thread = threading.Thread(target=self._carry, daemon=True)
        self._thread.start()
        return self

    def __exit__(self, *exc_info):
        os.write(self._stop[1], b"x")
        if self._thread is not None:
            self._thread.join()
        for end in (*self._ends, *self._stop):
            os.close(end)
        self._inside.shutdown()

    def there(self, call):
        """Call something in the other network. Its sockets and processes stay there."""
        return self._inside.submit(call).result()

    def _enter(self):
        """In the thread of the other network."""
        libc = ctypes.CDLL(None, use_errno=True)
        if libc.unshare(CLONE_NEWNET):
            raise OSError(ctypes.get_errno(), "unshare")
        self._ip("link", "set", "lo", "up")
        self._ends.append(self._end(self.address, self.here))

    def _end(self, address, other):
        """A TUN device in the network of this thread; what it is read from and written to."""
        end = os.open("/dev/net/tun", os.O_RDWR | os.O_CLOEXEC)
        try:
            asked = struct.pack("16sH22x", b"lossy%d", IFF_TUN | IFF_NO_PI)
            name = fcntl.ioctl(end, TUNSETIFF, asked)[:16].rstrip(b"\0").decode()
            self._ip("address", "add", address, "peer", other, "dev", name)
            self._ip("link", "set", name, "up")
        except BaseException:
            os.close(end)
            raise
        return end

    def _ip(self, *words):
        program = shutil.which("ip") or shutil.which("ip", path="/usr/sbin:/sbin") or "ip"
        subprocess.run([program, *words], check=True, capture_output=True)

    def _carry(self):
        here, there = self._ends
        while True:
            ready, _, _ = select.select([here, there, self._stop[0]], [], [])
            if self._stop[0] in ready:
                return
            for end in ready:
                packet = os.read(end, MAX_DATAGRAM_BYTES)
                if self._dice.random() < self.loss:
                    self.lost += 1
                    continue
                self.carried += 1
                with contextlib.suppress(OSError):  # a device without room loses packets, too
                    os.write(there if end == here else here, packet)
