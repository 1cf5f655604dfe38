"""A real browser: Debian's Chromium, driven by Playwright."""

import shutil
from contextlib import contextmanager

from playwright.sync_api import sync_playwright

EXECUTABLE = "chromium"


@contextmanager
def chromium():
    """A browser without a window. As root it runs without its sandbox, which root cannot have."""
    path = shutil.which(EXECUTABLE)
    assert path is not None, f"{EXECUTABLE} is not installed; type: make deps"
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path, args=["--no-sandbox"])
        try:
            yield browser
        finally:
            browser.close()


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
