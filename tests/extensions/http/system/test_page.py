"""The page, in a real Chromium, with a real app."""

import re
import socket
import time
import urllib.request
from importlib.resources import files
from pathlib import Path

import pytest
from playwright.sync_api import expect

from leadsman.extensions.http.routes import static_files
from leadsman.testing import Mosquitto
from leadsman.testing.mosquitto import free_port
from leadsman_rigs.browser import Complaints, chromium

FILES = Path(__file__).parents[4] / "src/leadsman/extensions/http/page"
MAX_BYTES = 100_000
"""Bytes of all files of the page, as they are sent: 100,000 are allowed."""
LONG = (
    "/dev/serial/by-id/usb-FTDI_FT232R_USB_UART_A50285BI-if00-port0 cannot be opened: the port does not exist; "
    "is the device plugged in?"
)
HTML = "<img src=x_y onerror=alert(1)>"
APP = f"""
from typing import Annotated
from pydantic import BaseModel
from leadsman import Sensor

class Mains(BaseModel):
    volts: Annotated[float, Sensor("V", device_class="voltage", precision=1)]
    load: float
    leak: Annotated[float, Sensor("A")]

class Climate(BaseModel):
    temperature: Annotated[float, Sensor("°C", precision=1)]

os.environ["HTTP__BIND"] = "127.0.0.1:{{port}}"
polls = iter(range(10**9))

@app.telemetry("meter", interval="500ms", retry=3)
def meter(): return {{{{"watts": 400 + next(polls), "note": {HTML!r}}}}}

tired = CircuitBreaker(2, recovery="1h")

@app.telemetry("boiler", interval="1s", retry=1, backoff=FixedBackoff("100ms"), circuit_breaker=tired)
def boiler(): raise OSError({HTML!r})

probed = CircuitBreaker(1, recovery="2s")

@app.telemetry("prober", interval="1s", circuit_breaker=probed)
def prober(): raise OSError({LONG!r})

@app.telemetry("mains", interval="1s")
def mains() -> Mains: return Mains(volts=231.23849487304688, load=231.23849487304688, leak=0.00123456)

@app.telemetry("waste", interval="1s")
def waste():
    days = [dict(day=1), dict(day=2)]
    return dict(next_bin="paper", events=days, by_kind=dict(glass=3))

@app.telemetry("nothing", interval="1s")
def nothing() -> None: return None

@app.telemetry("code", interval="1s", stale_after="1s")
def code(): return {{{{}}}}["temperature"]

@app.telemetry("hall2", interval="1h", title="hall")
def hall() -> Climate: return Climate(temperature=-19.5)

@app.telemetry("<b>attic<s>", interval="1h")
def attic(): return {{{{"celsius": 20.5}}}}
"""


@pytest.fixture(scope="module")
def app(start_app_for_all):
    """A running app, and the address of its page."""
    port = free_port()
    with Mosquitto() as broker:
        running = start_app_for_all(APP.format(port=port), broker.url)
        running.broker = broker
        running.address = f"http://127.0.0.1:{port}"
        wait_for_port(port)
        yield running


def wait_for_port(port):
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) == 0:
                return
        time.sleep(0.05)
    raise AssertionError("the endpoint did not open")


@pytest.fixture(scope="module")
def browser():
    with chromium() as browser:
        yield browser


@pytest.fixture
def page(browser, app):
    """The page, which must not complain of anything."""
    context = browser.new_context(viewport={"width": 1280, "height": 800})
    page = context.new_page()
    page.set_default_timeout(60_000)
    complaints = Complaints(page, app.address)
    page.goto(app.address)
    page.wait_for_selector("body[data-connection=live]")
    page.wait_for_selector("#rows .row")
    page.complaints = complaints.found
    yield page
    context.close()  # before the next line: one that stays open takes a place among the watchers
    assert page.complaints == []


def serious(page):
    """The barriers for people with disabilities that a checker finds (WCAG 2.2), those that matter."""
    page.evaluate(files("axe_playwright_python").joinpath("axe.min.js").read_text())
    found = page.evaluate("axe.run(document, {resultTypes: ['violations']})")
    return [
        (each["id"], each["nodes"][0]["html"])
        for each in found["violations"]
        if each["impact"] in ("serious", "critical")
    ]


def row(page, name):
    return page.get_by_role("row").filter(has=page.get_by_role("link", name=name, exact=True))


def test_it_shows_every_device_with_its_status_values_circuit_and_error(page):
    boiler = row(page, "boiler")
    boiler.get_by_text("circuit open").wait_for()

    assert "OSError" in boiler.inner_text()
    assert "since" in boiler.inner_text()
    assert re.search(r"open, \d+ min|open, 1 h", boiler.inner_text())
    assert re.search(r"4\d\d\s+watts", row(page, "meter").inner_text())
    assert page.get_by_role("row").count() == 10  # and the header
    page.locator("#summary").get_by_text("3 of 9 devices need attention", exact=True).wait_for()
    page.locator("#facts").get_by_text("connected", exact=True).wait_for()
    assert "version" not in page.locator("#facts").inner_text()  # the app says none


def test_a_reading_is_on_the_page_without_a_reload(page):
    value = row(page, "meter").locator(".c-value b")
    before = value.inner_text()

    page.wait_for_function("([e, before]) => e.textContent !== before", arg=[value.element_handle(), before])
    assert row(page, "meter").locator(".spark-line").get_attribute("points")


def test_a_value_has_the_unit_and_the_decimals_that_are_declared_and_is_whole_in_its_title(page):
    value, others = row(page, "mains").locator(".c-value b"), row(page, "mains").locator(".c-value .second")
    value.get_by_text("231.2 V", exact=True).wait_for()
    assert value.get_attribute("title") == "231.23849487304688 V (voltage)"
    assert others.inner_text().endswith("load 231.24, leak 0.00123 A")
    assert others.get_attribute("title") == "load 231.23849487304688, leak 0.00123456 A"

    page.get_by_role("link", name="mains", exact=True).click()
    values = page.get_by_role("region", name="Last values")
    for name, shown, title in (
        ("volts voltage", "231.2 V", "231.23849487304688 V (voltage)"),
        ("leak", "0.00123 A", "0.00123456 A"),
    ):
        cells = values.get_by_role("row").filter(has=page.get_by_role("rowheader", name=name, exact=True))
        cells.get_by_text(shown, exact=True).wait_for()
        assert cells.locator(".number").get_attribute("title") == title
    values.locator(".pic [title^='231.2 V to 231.2 V since']").wait_for()


def test_lists_and_nested_fields_are_shown_and_names_have_no_underscores(page):
    row(page, "waste").get_by_text("next bin").wait_for()
    page.get_by_role("link", name="waste", exact=True).click()
    values = page.get_by_role("region", name="Last values")

    for name, text in (("next bin", "paper"), ("events", "day 1\nday 2"), ("by kind", "glass 3")):
        cells = values.get_by_role("row").filter(has=page.get_by_role("rowheader", name=name, exact=True))
        cells.wait_for()
        assert cells.locator("td").first.inner_text() == text


def test_a_value_opens_as_a_curve_with_axes_by_the_keyboard_too(page):
    page.get_by_role("link", name="meter", exact=True).click()
    page.get_by_role("button", name="Curve of watts").focus()
    page.keyboard.press("Enter")
    curve = page.get_by_role("img", name=re.compile(r"^\d+ values from \d\d:\d\d:\d\d to .+, 4\d\d to 4\d\d$"))
    curve.wait_for()

    assert re.match(r"4\d\d", curve.locator(".value").first.text_content())
    assert curve.locator(".axis").count() > 0 or curve.locator("circle").count() < 20
    page.keyboard.press("Enter")
    curve.wait_for(state="hidden")


def test_a_probe_is_one_row_of_the_trace_and_one_line_of_what_happened(page):
    page.get_by_role("link", name="prober", exact=True).click()
    trace = page.get_by_role("region", name="Trace", exact=True)
    trace.get_by_text("the probe failed").nth(1).wait_for()

    rows = [each.split("\t")[1] for each in trace.locator("tbody tr").all_inner_texts()]
    assert set(rows[: rows.index("the probe failed") + 2]) == {"the probe failed"}
    happened = page.get_by_role("list", name="What happened").get_by_role("listitem")
    happened.filter(has_text="half open").first.wait_for(state="detached")  # it is there while a probe runs


MARKED = """async ([events, rows]) => {
    const { Model } = await import('/model.js');
    const model = new Model();
    model.take({ devices: { prober: { registrations: [], runtime: {} } } }, false);
    events.forEach((each) => model.event(each));
    model.rows(rows);
    return model.devices.get('prober').marks.map(({ kind, state }) => state ?? kind);
}"""


def in_one_millisecond(*marks):
    return [{"number": n, "at": "2026-01-01T00:00:00.000Z", **each} for n, each in enumerate(marks, 1)]


@pytest.mark.parametrize("heard", [0, 1, 2, 3, 4])
def test_a_page_that_opens_in_the_middle_of_a_probe_shows_it_as_one_line_too(page, heard):
    """All steps of a probe are in one millisecond: the page hears the last ones as events, and asks for all of them."""
    events = in_one_millisecond(
        {"type": "circuit_moved", "state": "half_open", "device": "prober"},
        {"type": "attempt_failed", "attempt": 1, "device": "prober"},
        {"type": "circuit_moved", "state": "open", "device": "prober"},
        {"type": "poll_failed", "device": "prober"},
    )
    rows = in_one_millisecond(
        {"handler": "prober", "reason": "circuit half_open"},
        {"handler": "prober", "reason": "probe", "attempt": 1},
        {"handler": "prober", "reason": "circuit open"},
        {"handler": "prober", "reason": "failed"},
    )

    assert page.evaluate(MARKED, [events[4 - heard :], rows]) == ["half_open", "call", "open", "failed"]


def test_what_a_person_asked_for_stands_before_what_came_of_it(page):
    events = in_one_millisecond(
        {"type": "circuit_requested", "action": "isolate", "by": "ann", "device": "prober"},
        {"type": "circuit_moved", "state": "isolated", "device": "prober"},
    )

    assert page.evaluate(MARKED, [events, []]) == ["asked", "isolated"]


def test_the_tab_says_how_many_devices_are_in_trouble(page):
    expect(page).to_have_title(re.compile(r"^\([34]\) \w+ · leadsman$"))
    page.get_by_role("link", name="meter", exact=True).click()
    expect(page).to_have_title(re.compile(r"^\([34]\) meter · \w+ · leadsman$"))


def test_on_a_telephone_the_first_device_is_on_the_first_screen(page):
    page.set_viewport_size({"width": 360, "height": 780})

    first = page.locator("#rows .row").first.bounding_box()
    assert first["y"] + first["height"] < 780


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_it_has_no_serious_barrier_in_any_view(page, theme):
    page.emulate_media(color_scheme=theme)
    for width in (1280, 360):
        page.set_viewport_size({"width": width, "height": 800})
        for view in ("#/", "#/trace", "#/device/meter", "#/device/boiler"):
            page.goto(f"{page.url.partition('#')[0]}{view}")
            page.locator("main section:visible").first.wait_for()
            assert serious(page) == [], (view, width)


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_it_has_no_serious_barrier_where_there_is_nothing_to_show(page, theme):
    page.emulate_media(color_scheme=theme)
    page.locator("#search").fill("no such device")
    page.get_by_text("No device matches.").wait_for()
    assert serious(page) == []
    page.goto(f"{page.url.partition('#')[0]}#/device/gone")
    page.locator("#view-device").wait_for()
    assert serious(page) == []
    page.complaints[:] = [each for each in page.complaints if "404" not in each]


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_it_says_that_the_broker_is_away_and_has_no_serious_barrier_then(page, app, theme):
    page.emulate_media(color_scheme=theme)
    app.broker.stop()
    try:
        page.locator("#summary", has_text="readings wait: the broker is away").wait_for()
        page.get_by_text(re.compile("^away for [1-9]")).wait_for()
        for width in (1280, 360):
            page.set_viewport_size({"width": width, "height": 800})
            for view in ("#/", "#/trace", "#/device/meter", "#/device/boiler"):
                page.goto(f"{page.url.partition('#')[0]}{view}")
                page.locator("main section:visible").first.wait_for()
                assert serious(page) == [], (view, width)
        page.goto(f"{page.url.partition('#')[0]}#/")
        page.locator("#facts").get_by_text(re.compile("^room for .+ more")).wait_for()  # also on a telephone
    finally:
        app.broker.start()
    page.goto(f"{page.url.partition('#')[0]}#/")
    page.locator("#facts").get_by_text("connected", exact=True).wait_for()


def test_it_has_no_serious_barrier_in_a_dialog(page):
    page.get_by_role("link", name="meter", exact=True).click()
    page.get_by_role("button", name="Hold").click()
    page.get_by_role("dialog").wait_for()

    assert serious(page) == []


def test_nothing_that_a_device_says_becomes_html(page):
    page.get_by_role("link", name="boiler", exact=True).click()

    page.locator("#view-device").get_by_text(HTML).first.wait_for()
    assert page.locator("img, #rows b b, h1 b").count() == 0
    page.get_by_role("link", name="All devices").click()
    page.get_by_role("link", name="<b>attic<s>", exact=True).click()
    page.locator("#device-title", has_text=re.compile("^<b>attic<s>")).wait_for()


def test_a_device_has_a_view_with_its_timeline_and_its_options(page):
    page.get_by_role("link", name="boiler", exact=True).click()
    view = page.locator("#view-device")

    view.get_by_text(re.compile("^retry: ")).wait_for()
    view.get_by_text(re.compile("^backoff: ")).wait_for()
    view.locator("[data-range='3600']").click()  # it was called as the app began, which may be minutes ago
    view.locator(".timeline .mark-call").first.wait_for(state="attached")
    view.locator(".timeline .band-bad").first.wait_for(state="attached")
    for several in (".story li", ".trace tbody tr"):
        view.locator(several).nth(1).wait_for(state="attached")


def test_a_device_that_is_silent_has_the_first_broken_link_and_what_to_do(page):
    page.get_by_role("link", name="boiler", exact=True).click()
    why = page.get_by_role("region", name="Why nothing arrives")

    why.get_by_text("First broken link: circuit, since").wait_for()
    assert f"last error: OSError: {HTML}" in why.inner_text()
    assert re.search(r"What to do: \w+", why.inner_text())


def test_a_device_that_was_never_read_and_fails_is_an_error_with_its_line_and_the_cause_leads(page):
    code = row(page, "code").and_(page.locator("[data-status=error]"))
    code.get_by_text(re.compile(r"KeyError: 'temperature' \(.+:\d+\)")).wait_for()
    assert "error" in code.locator(".word").inner_text()

    page.get_by_role("link", name="code", exact=True).click()
    lead = page.locator("#view-device .lead")
    lead.get_by_text(re.compile(r"^KeyError: 'temperature' \(.+:\d+\) for [\dhms]+, \d+ polls in a row")).wait_for()
    assert lead.inner_text().endswith(". leadsman tries it every 1s.")


def test_what_the_page_advises_is_a_button_and_no_command_line(page):
    page.get_by_role("link", name="boiler", exact=True).click()
    why = page.get_by_role("region", name="Why nothing arrives")

    why.get_by_text("with its traceback, below", exact=False).wait_for()
    assert "--prefix" not in why.inner_text()
    page.get_by_role("button", name="Close circuit").wait_for()


def test_a_handler_that_returns_none_has_its_reason_on_the_page_too(page):
    page.get_by_role("link", name="nothing", exact=True).click()

    page.get_by_role("region", name="Why nothing arrives").get_by_text("its handler returns None").wait_for()


def test_the_ledger_of_a_device_has_words_for_its_slots_and_for_the_cause_of_a_gap(page):
    page.get_by_role("link", name="boiler", exact=True).click()
    ledger = page.get_by_role("region", name="Ledger")

    ledger.get_by_text(re.compile(r"\d circuit open")).wait_for()
    ledger.get_by_text(re.compile(r"so far: failed, \d+ polls")).wait_for()


def test_its_reasons_have_times_of_this_time_zone_as_all_else(browser, app):
    context = browser.new_context(timezone_id="Pacific/Kiritimati")  # 14 hours before UTC
    page = context.new_page()
    page.goto(f"{app.address}/#/device/boiler")
    why = page.get_by_role("region", name="Why nothing arrives")
    evidence = why.get_by_text("failing since")
    evidence.wait_for()

    [since] = re.findall(r"circuit, since (.*)", why.inner_text())
    assert f"failing since {since} (" in evidence.inner_text()
    assert not re.search(r"\d\dZ", why.inner_text())
    context.close()


def test_it_asks_for_a_token_and_says_that_a_token_is_wrong(page):
    def guarded(route):
        if route.request.headers.get("authorization") == "Bearer right":
            route.continue_()
        else:
            route.fulfill(status=401, json={"status": 401, "detail": "send the token"})

    page.route(re.compile("/(events|introspect|trace)$"), guarded)
    page.reload()
    dialog, wrong = page.get_by_role("dialog"), page.get_by_role("alert").get_by_text("this token is wrong")
    dialog.wait_for()
    assert serious(page) == []
    dialog.get_by_label("Token").fill("guessed")
    assert wrong.count() == 0
    page.get_by_text("No connection to the app since").and_(page.get_by_text(": it wants a token.")).wait_for()

    dialog.get_by_role("button", name="Go on").click()
    wrong.wait_for()
    page.get_by_text(": the token is wrong.").wait_for()
    dialog.get_by_label("Token").fill("right")
    dialog.get_by_role("button", name="Go on").click()
    page.wait_for_selector("body[data-connection=live]")
    assert dialog.count() == 0
    page.complaints[:] = [each for each in page.complaints if "401" not in each]


def test_an_action_is_done_after_a_person_confirmed_it(page):
    page.get_by_role("link", name="meter", exact=True).click()
    page.get_by_role("button", name="Hold").click()
    page.get_by_role("button", name="Cancel").click()
    page.locator("#view-device .word").first.get_by_text("ok", exact=True).wait_for()

    page.get_by_role("button", name="Hold").click()
    page.get_by_label("Your name").fill("ann")
    page.get_by_role("dialog").get_by_role("button", name="Hold").click()
    page.locator("#view-device[data-status=held]").wait_for()
    page.locator(".story").get_by_text("put on hold by ann").wait_for()
    page.locator("#said", has_text="meter: held").wait_for(state="attached")
    page.get_by_role("region", name="Why nothing arrives").get_by_text("Silent on purpose: hold").wait_for()

    page.get_by_role("button", name="Release").click()
    page.get_by_role("dialog").get_by_role("button", name="Release").click()
    page.locator("#view-device[data-status=ok]").wait_for()
    page.get_by_role("region", name="Why nothing arrives").wait_for(state="hidden")


def test_it_can_be_used_with_the_keyboard_alone(page):
    page.keyboard.press("/")
    page.keyboard.type("meter")
    page.wait_for_function("document.querySelectorAll('#rows .row').length == 1")
    page.keyboard.press("Enter")
    page.wait_for_function("document.activeElement.textContent == 'meter'")
    page.keyboard.press("Enter")
    page.locator("h1", has_text="meter").wait_for()
    page.keyboard.press("Escape")
    page.locator("#view-devices").wait_for()
    page.keyboard.press("t")
    page.locator("h1", has_text="Trace").wait_for()


def test_it_fits_a_narrow_screen_in_both_themes(page):
    page.set_viewport_size({"width": 360, "height": 640})
    for theme in ("light", "dark"):
        page.get_by_role("button", name="Colours").click()
        assert page.evaluate("document.documentElement.dataset.theme") == theme
        for view in ("#/", "#/trace", "#/device/boiler"):
            page.goto(f"{page.url.partition('#')[0]}{view}")
            page.locator("main section:visible").first.wait_for()
            assert page.evaluate("document.documentElement.scrollWidth") == 360, view


def test_the_list_shows_a_usual_error_whole_on_any_screen(page):
    def explained(route):
        document = route.fetch().json()
        document["devices"]["boiler"]["runtime"]["last_error"] = "DeviceTimeout: no message from /dev/ttyUSB0 within 3s"
        route.fulfill(json=document)

    page.route(re.compile("/introspect$"), explained)
    page.reload()
    error = row(page, "boiler").locator(".c-error")
    error.get_by_text("within 3s").wait_for()
    for width in (360, 800, 1280):
        page.set_viewport_size({"width": width, "height": 800})
        text, cell, whole = (each.bounding_box() for each in (error.locator(".why"), error, row(page, "boiler")))
        assert error.locator(".why").evaluate(
            "it => it.scrollHeight <= it.clientHeight && it.scrollWidth <= it.clientWidth"
        )
        assert text["y"] >= whole["y"]
        assert cell["y"] + cell["height"] <= whole["y"] + whole["height"]


def test_on_a_laptop_a_value_stands_with_its_unit_and_its_whole_name(page):
    for width in (1200, 1280):
        page.set_viewport_size({"width": width, "height": 800})
        value = row(page, "hall").locator(".c-value .first")
        expect(value).to_have_text("-19.5 °C temperature")
        assert value.evaluate("it => it.scrollWidth <= it.clientWidth"), width


def test_the_list_is_as_wide_as_its_frame_on_any_screen(page):
    for width in (360, 620, 800, 1100, 1200, 1280, 1600):
        page.set_viewport_size({"width": width, "height": 800})
        cell, frame = row(page, "prober").locator(".c-error").bounding_box(), page.locator("#table").bounding_box()
        assert cell["x"] + cell["width"] <= frame["x"] + frame["width"], width


def test_the_list_shows_a_long_error_whole_on_any_screen_and_only_its_row_is_higher(page):
    error = row(page, "prober").locator(".c-error")
    error.get_by_text("is the device plugged in?").wait_for()
    for width in (360, 800, 1280):
        page.set_viewport_size({"width": width, "height": 800})
        page.evaluate("new Promise(done => requestAnimationFrame(() => requestAnimationFrame(done)))")  # it is drawn
        cell, whole, other = (each.bounding_box() for each in (error, row(page, "prober"), row(page, "code")))
        assert error.locator(".why").evaluate("it => it.scrollHeight <= it.clientHeight"), width
        assert cell["y"] + cell["height"] <= whole["y"] + whole["height"], width
        assert other["height"] < whole["height"], width


def test_the_facts_about_the_app_are_whole_on_any_screen(page):
    for width in (800, 1280):
        page.set_viewport_size({"width": width, "height": 800})
        for fact in page.locator("#facts dd.dim").all():
            assert fact.evaluate("it => it.scrollWidth <= it.clientWidth"), (width, fact.inner_text())


def test_on_a_telephone_the_timeline_has_times_and_a_status_is_whole(page):
    page.set_viewport_size({"width": 360, "height": 780})
    word = page.locator("#rows .row .second").first
    assert word.evaluate("it => it.scrollWidth <= it.clientWidth")
    page.goto(f"{page.url.partition('#')[0]}#/device/meter")

    expect(page.locator(".picture .axis").nth(1)).to_have_text(re.compile(r"^\d\d:\d\d$"))


def test_a_device_has_its_name_for_people_and_its_own_beside_it(page):
    row(page, "hall").get_by_text("hall2", exact=False).wait_for()

    page.get_by_role("link", name="hall", exact=True).click()
    page.get_by_role("heading", name="hall").get_by_title("hall2").wait_for()


def test_of_a_thousand_devices_only_those_on_the_screen_are_drawn(page):
    def multiplied(route):
        document = route.fetch().json()
        document["devices"] |= {f"node-{number:04}": document["devices"]["meter"] for number in range(1000)}
        route.fulfill(json=document)

    page.route(re.compile("/introspect$"), multiplied)
    page.route(re.compile("/introspect[?/].*node-"), lambda route: route.fulfill(json={}))
    page.reload()
    page.get_by_text("1,009 devices").wait_for()

    assert page.locator("#rows .row").count() < 60
    page.keyboard.press("End")
    page.get_by_role("link", name="node-0999", exact=True).wait_for()
    assert page.locator("#rows .row").count() < 60


def test_it_says_when_the_connection_is_lost_and_goes_on_when_it_is_back(page, app):
    app.kill()
    page.get_by_text("No connection to the app since").wait_for()
    assert serious(page) == []
    again = page.get_by_role("button", name="Try now")
    line = again.bounding_box()["height"]
    page.set_viewport_size({"width": 360, "height": 780})
    assert again.bounding_box()["height"] == line
    page.set_viewport_size({"width": 1280, "height": 800})
    assert page.evaluate("getComputedStyle(document.querySelector('main')).filter") == "grayscale(1)"
    page.get_by_role("link", name="meter", exact=True).click()
    page.get_by_role("button", name="Poll now", disabled=True).wait_for()

    app.start()
    page.wait_for_selector("body[data-connection=live]")
    page.locator("#banner").wait_for(state="hidden")
    page.get_by_role("button", name="Poll now", disabled=False).wait_for()
    page.complaints[:] = [
        each for each in page.complaints if not re.search("ERR_CONNECTION|ERR_INCOMPLETE|404|503", each)
    ]


@pytest.mark.parametrize(
    ("messages", "only", "oldest", "said"),
    [
        (100, 0, 3.0, "room for 50.0 MB more"),  # it is too early for a rate
        (100, 0, 100.0, "room for 50.0 MB more, about 5 d 18 h"),
        (100, 99_900, 100_000.0, "room for 50.0 MB more, about 5 d 18 h"),  # the memory holds a part of what waits
        (100, 0, 1000.0, "room for 50.0 MB more, over 7 d"),  # by then the oldest are too old
    ],
)
def test_the_room_of_the_outbox_counts_what_waits_on_disk_only(page, messages, only, oldest, said):
    waiting = {"messages": messages, "bytes": messages * 100, "oldest": oldest, "on_disk": {"only": only, "room": 50e6}}

    assert page.evaluate("async (it) => (await import('/overview.js')).roomOf(it)", waiting) == said


def test_its_files_are_small_and_name_no_other_place():
    texts = {path.name: path.read_text() for path in FILES.iterdir()}

    assert sum(len(file.content) for file in static_files(FILES.iterdir()).values()) < MAX_BYTES
    for name, text in texts.items():
        assert not re.search(r"(?:src|href|import|url\()\W*(?:https?:)?//", text), name
        assert not re.search(r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\(", text), name


def test_it_comes_with_a_policy_that_allows_nothing_from_elsewhere(app):
    with urllib.request.urlopen(f"{app.address}/") as answer:
        policy = answer.headers["Content-Security-Policy"]

    assert "default-src 'none'" in policy
    assert "script-src 'self'" in policy
    assert "unsafe" not in policy
