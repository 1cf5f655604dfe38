"""A real browser: Debian's Chromium or Google Chrome, driven by Playwright."""

import shutil
from contextlib import contextmanager
from pathlib import Path

from playwright.sync_api import sync_playwright

EXECUTABLES = ("chromium", "google-chrome")


@contextmanager
def chromium():
    """A browser without a window. As root it runs without its sandbox, which root cannot have."""
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=executable(), args=["--no-sandbox"])
        try:
            yield browser
        finally:
            browser.close()


def executable():
    """The path of the browser. Ubuntu's Chromium is a snap, which does not see the profile in /tmp."""
    for path in filter(None, map(shutil.which, EXECUTABLES)):
        if Path(path).resolve().name != "snap" and b"/snap/bin/" not in Path(path).read_bytes():
            return path
    raise AssertionError("there is no Chromium that is not a snap; type: make deps")


class Complaints:
    """What a page complains of: errors, what the content policy forbids, and requests to other places."""

    def __init__(self, page, origin):
        self.found = []
        page.on("pageerror", lambda error: self.found.append(f"error: {error}"))
        page.on("console", self._on_console)
        page.on("request", lambda request: self._on_request(request.url, origin))

    def _on_console(self, message):
        if message.type in ("error", "warning"):
            self.found.append(f"{message.type}: {message.text}")

    def _on_request(self, url, origin):
        if not url.startswith((f"{origin}/", "data:")):
            self.found.append(f"request to {url}")
