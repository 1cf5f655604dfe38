"""A terminal of 80 columns, on which a program draws a screen and takes keys."""

import fcntl
import os
import pty
import re
import select
import struct
import subprocess
import termios
import time

import pytest


class Terminal:
    """A terminal of 80 columns on which a program runs."""

    def __init__(self, command):
        self.leader, follower = pty.openpty()
        fcntl.ioctl(follower, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 80, 0, 0))
        self.before = termios.tcgetattr(follower)
        environment = {**os.environ, "TERM": "xterm-256color"}
        self.process = subprocess.Popen(command, stdin=follower, stdout=follower, stderr=follower, env=environment)
        self.follower, self.text = follower, ""

    def read(self, seconds):
        if select.select([self.leader], [], [], seconds)[0]:
            self.text += os.read(self.leader, 65_536).decode(errors="replace")

    @property
    def frame(self):
        """The lines of the last frame that is complete."""
        frames = [each for each in self.text.split("\x1b[H")[1:] if each.endswith("\x1b[J")]
        return [re.sub("\x1b\\[[0-9;]*[mKJ]", "", line) for line in frames[-1].split("\r\n")] if frames else []

    def wait_for(self, *words, without=(), timeout=60.0):
        """The first frame with all these words, and none of the others."""
        deadline = time.monotonic() + timeout
        while time.monotonic() < deadline:
            self.read(0.1)
            shown = "\n".join(self.frame)
            if all(word in shown for word in words) and not any(word in shown for word in without):
                return self.frame
        pytest.fail(f"{words} did not come; the screen is:\n" + "\n".join(self.frame))

    def press(self, keys):
        os.write(self.leader, keys.encode())

    def ended(self):
        """The exit code, once the program has ended."""
        deadline = time.monotonic() + 60
        while self.process.poll() is None and time.monotonic() < deadline:
            self.read(0.1)
        self.read(0.1)
        return self.process.wait(1)

    def close(self):
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()
        os.close(self.leader)
        os.close(self.follower)
