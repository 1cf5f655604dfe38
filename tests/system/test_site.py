"""The search and the width of the documentation site, in a real browser."""

import functools
import http.server
import subprocess
import sys
import threading
import time
from pathlib import Path
from urllib.parse import quote_plus

import pytest

from leadsman_rigs.browser import chromium

QUESTIONS = {
    "how do I read a device every 5 minutes": "docs/quickstart.html",
    "broker restarts, are readings lost": "docs/how-to/durability.html",
    "device shows stale": "docs/how-to/silent.html",
    "rename a device in Home Assistant": "docs/how-to/home-assistant.html",
    "two brokers": "docs/how-to/which-broker.html",
    "a reading arrives twice": "docs/how-to/durability.html",
    "secret in Docker": "docs/how-to/settings.html",
    "test with a fake device": "docs/how-to/testing.html",
    "what does deferred mean": "docs/glossary.html",
    "remove an old device": "docs/how-to/clean.html",
    "mock a serial port": "docs/how-to/testing.html",
    "wrong password": "docs/how-to/doctor.html",
    "how do I update": "docs/how-to/raspberry-pi.html",
    "backup": "docs/how-to/raspberry-pi.html",
    "paho": "docs/how-to/from-a-loop.html",
    "daylight saving time": "docs/explanation/time.html",
    "retry when a read fails": "docs/how-to/retry.html",
    "grafana": "docs/how-to/grafana.html",
    "telegraf": "docs/how-to/influxdb.html",
    "store readings in a database": "docs/how-to/influxdb.html",
    "node-red": "docs/how-to/node-red.html",
    "start at boot": "docs/how-to/deployment.html",
    "circuit open": "docs/how-to/retry.html",
    "unit of a value": "docs/how-to/readings.html",
    "run it on a Raspberry Pi": "docs/how-to/raspberry-pi.html",
    "keep old topics": "docs/how-to/from-a-loop.html",
    "httpx": "docs/how-to/http-devices.html",
    "retry-after": "docs/how-to/http-devices.html",
    "deadband": "docs/how-to/publish-rules.html",
    "uninstall": "docs/how-to/raspberry-pi.html",
    "FAQ": "docs/how-to/symptoms.html",
    "it does not work": "docs/how-to/symptoms.html",
    "common problems": "docs/how-to/symptoms.html",
    "what happens when mqtt broker is down": "docs/how-to/durability.html",
    "read a sensor every minute": "docs/quickstart.html",
    "several sensors same code": "docs/how-to/devices.html",
    "multiple instances": "docs/how-to/two-of-one-app.html",
    "ds18b20": "docs/how-to/onewire.html",
    "ESP32": "docs/how-to/messages.html",
    "stale": "docs/how-to/silent.html",
    "held": "docs/glossary.html",
    "circuit breaker": "docs/how-to/retry.html",
    "sensor offline": "docs/how-to/supervision.html",
    "publish only when value changed": "docs/how-to/publish-rules.html",
    "delete retained messages": "docs/how-to/clean.html",
    "change the name shown in home assistant": "docs/how-to/home-assistant.html",
    "dashboard port 8080": "docs/how-to/http.html",
    "dialout": "docs/how-to/raspberry-pi.html",
}
"""What people ask, and the page that answers it."""
WORDS = {
    "retry": "docs/how-to/retry.html",
    "unit": "docs/how-to/readings.html",
    "offline": "docs/how-to/supervision.html",
    "heartbeat": "docs/reference/documents.html",
    "connection refused": "docs/how-to/symptoms.html",
}
"""Words of many pages, and the one to read first."""
CUT = """[...document.querySelectorAll('article pre code')]
    .filter(each => each.scrollWidth > each.clientWidth + 1).map(each => each.textContent)"""
"""The code blocks that are wider than their place."""


class Files(http.server.SimpleHTTPRequestHandler):
    """The files of the site, without a log."""

    def log_message(self, *_):
        """Say nothing."""


@pytest.fixture(scope="module")
def site():
    """The address of the site, which is built before."""
    subprocess.run([sys.executable, "scripts/site.py"], check=True)
    handler = functools.partial(Files, directory="build/site")
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}/"
        server.shutdown()
        thread.join()


def results(site, questions):
    """The pages that the search finds for each question, until the wanted one is among as many of the first as are
    wanted."""
    found = {}
    with chromium() as browser:
        page = browser.new_page()
        page.goto(f"{site}index.html")
        page.keyboard.press("/")
        for question, (answer, first) in questions.items():
            page.get_by_role("combobox").fill(question)
            page.locator(f'a[role=option][href*="?h={quote_plus(question)}"]').first.wait_for()
            end = time.monotonic() + 5
            while (
                answer not in found.setdefault(question, [])[:first] and time.monotonic() < end
            ):  # they come one by one
                shown = page.get_by_role("option").evaluate_all("all => all.map(a => a.href)")
                found[question] = [href.removeprefix(site).partition("?")[0] for href in shown]
    return {
        question: found[question][:first]
        for question, (answer, first) in questions.items()
        if answer not in found[question][:first]
    }


def test_the_search_answers_each_question_among_the_first_three_results(site):
    assert results(site, {question: (answer, 3) for question, answer in QUESTIONS.items()}) == {}


def test_a_word_of_many_pages_leads_to_the_one_that_explains_it_first(site):
    assert results(site, {word: (page, 1) for word, page in WORDS.items()}) == {}


def test_code_fits_the_site_on_a_laptop_and_no_page_is_wider_than_a_telephone(site):
    pages = [page.relative_to("build/site").as_posix() for page in sorted(Path("build/site").rglob("*.html"))]
    shown = [page for page in pages if not page.startswith("docs/adr/") and page != "404.html"]
    cut, wide = [], []
    with chromium() as browser:
        page = browser.new_page(java_script_enabled=False)  # it takes half of the time, and changes no width
        for name in shown:
            page.set_viewport_size({"width": 1280, "height": 800})
            page.goto(f"{site}{name}")
            cut += [(name, code[:60]) for code in page.evaluate(CUT)]
            page.set_viewport_size({"width": 360, "height": 780})
            wide += [name] if page.evaluate("document.documentElement.scrollWidth") > 360 else []

    assert cut == []
    assert wide == []


def test_the_readme_has_its_picture_on_the_first_screen_of_a_laptop_and_ends_on_the_second(site):
    with chromium() as browser:
        page = browser.new_page(viewport={"width": 1280, "height": 800})
        page.goto(f"{site}index.html")
        picture, last = page.locator("article img").first, page.locator("article > p").last
        picture.wait_for()
        box, end = picture.bounding_box(), last.bounding_box()

    assert box["height"] > 100
    assert box["y"] + box["height"] <= 800
    assert end["y"] + end["height"] <= 2 * 800
