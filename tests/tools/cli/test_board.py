"""How the board of `leadsman watch` looks, and what its keys do."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from leadsman.tools.cli.board import BoardView, Heading, plain, screen
from leadsman.tools.cli.fleet import AppRow, DeviceRow
from leadsman.tools.cli.screen import clip, text_of
from leadsman.tools.cli.terminal import keys_of

HEAD = Heading("mqtt://broker.lan:1883", "09:00:00Z", None)
HOUSE = AppRow("house", "online", 3.0, 3600.0, 0, 0, "5.0", 1, "")
ATTIC = DeviceRow("house", "attic", "ok", "t 21.5", 3.2, 27.0, 0, 0, None, "", "closed")
BOILER = DeviceRow("house", "boiler", "circuit_open", "", 700.0, 12.4, 5, 2, 190.0, "DeviceTimeout: no answer", "open")
PUMP = DeviceRow("garden", "pump", "ok", "", None, None, 0, 0, None, "", "closed")
VERDICT = {
    "device": "boiler",
    "link": "circuit",
    "state": "broken",
    "summary": "its circuit is open",
    "since": None,
    "evidence": ["the next probe is due", "x" * 200],
    "advice": "check the cable",
}


def shown(rows, view=None, size=(80, 24), apps=(HOUSE,), head=HEAD, why=None):
    return [text_of(line, colour=False) for line in screen(head, apps, rows, view or BoardView(), size, why)]


def test_a_board_of_80_columns_has_each_device_with_what_matters():
    assert shown([ATTIC, BOILER])[:6] == [
        "leadsman watch  mqtt://broker.lan:1883  2 devices, 1 in trouble        09:00:00Z",
        "house            online  up 1h, MQTT 5.0, 1 connection, outbox 0",
        "  device              status       last value                 age      next",
        "> boiler              circuit open                            11m40s   in 12s",
        "    for 3m10s, 5 failed polls, attempt 2: DeviceTimeout: no answer",
        "  attic               ok           t 21.5                     3s       in 27s",
    ]


def test_a_board_without_devices_does_not_say_that_all_is_well():
    first, *_ = shown([])

    assert "0 devices" in first
    assert "well" not in first


def test_it_fills_the_screen_and_ends_with_the_keys():
    lines = shown([ATTIC], size=(80, 10))

    assert len(lines) == 10
    assert lines[-1].startswith("q quit  ↑ ↓ choose  Enter why")


def test_without_a_connection_it_says_so_above_all():
    lines = shown(
        [ATTIC], head=HEAD._replace(lost="no connection to the broker for 12s: refused; the board shows old values")
    )

    assert lines[1].startswith("no connection to the broker for 12s")
    assert "1 device, state unknown " in lines[0]
    assert "well" not in lines[0]
    assert "1 device, all is well" in shown([ATTIC])[0]


def test_notes_are_between_what_is_wrong_with_the_connection_and_the_apps_broken_at_words():
    notes = ("the page is at http://127.0.0.1:8080/", "on purpose: \x1b[2J " + "the broker is dead " * 4)
    lines = shown([ATTIC], head=HEAD._replace(lost="no connection", notes=notes), size=(60, 24))

    assert [line.strip() for line in lines[1:6]] == [
        "no connection",
        "the page is at http://127.0.0.1:8080/",
        "on purpose: \\x1b[2J the broker is dead the broker is dead",
        "the broker is dead the broker is dead",
        "house            was online  up 1h, MQTT 5.0, 1 connection,…",
    ]


def test_a_cursor_that_nobody_moved_is_at_the_first_device_in_trouble():
    view, well = BoardView(), BOILER._replace(status="ok", error="")
    shown([ATTIC, well], view)
    assert view.chosen == ("house", "attic")

    assert [line for line in shown([ATTIC, BOILER], view) if line.startswith("> boiler")]
    view.press("enter", [ATTIC, BOILER])
    shown([ATTIC, well], view)
    assert view.chosen == ("house", "boiler")  # what a person reads stays on the screen


def test_a_cursor_that_a_person_moved_stays_at_its_device():
    view, well = BoardView(), BOILER._replace(status="ok", error="")
    shown([ATTIC, PUMP, well], view)
    view.press("down", [ATTIC, PUMP, well])
    assert view.chosen == ("house", "attic")

    shown([ATTIC, PUMP, BOILER], view)
    assert view.chosen == ("house", "attic")
    shown([PUMP, BOILER], view)  # the device is gone: back to the first row
    assert view.chosen == ("house", "boiler")


def test_the_chosen_device_stays_on_a_small_screen():
    rows = [ATTIC._replace(device=f"d{number:02}") for number in range(50)]
    view = BoardView()
    for _ in range(30):
        view.press("down", rows)
    lines = shown(rows, view, (80, 10))

    assert [line for line in lines if line.startswith("> d30")]
    assert ("house", "d30") in view.visible
    assert len(view.visible) <= 10


def test_devices_of_several_apps_have_their_prefix():
    lines = shown([ATTIC, PUMP], apps=(HOUSE, HOUSE._replace(prefix="garden", state="offline", heard=None)))

    assert any(line.startswith("> garden/pump") for line in lines)
    assert any("offline" in line for line in lines)


def test_the_order_and_the_filter_are_keys():
    rows, view = [ATTIC, BOILER, PUMP], BoardView()
    assert [row.device for row in view.of(rows)] == ["boiler", "pump", "attic"]
    view.press("s", rows)
    assert [row.device for row in view.of(rows)] == ["pump", "attic", "boiler"]
    view.press("s", rows)
    assert view.of(rows)[0] is BOILER
    view.press("t", rows)
    assert [row.device for row in view.of(rows)] == ["boiler"]
    view.press("t", rows)
    for key in ("/", "p", "u", "x", "backspace", "enter"):
        view.press(key, rows)
    assert [row.device for row in view.of(rows)] == ["pump"]
    assert not view.typing
    view.press("esc", rows)
    assert len(view.of(rows)) == 3


def test_a_q_in_the_filter_does_not_quit_and_ctrl_c_always_does():
    view = BoardView()
    view.press("/", [])

    assert not view.press("q", [])
    assert view.filter == "q"
    assert view.press("ctrl-c", [])
    view.press("esc", [])
    assert view.press("q", [])


def test_the_detail_of_a_device_has_its_verdict():
    view = BoardView()
    view.of([BOILER])
    view.press("enter", [BOILER])
    waiting = shown([BOILER], view)
    lines = shown([BOILER], view, why=VERDICT)

    assert "waiting for the answer of the app …" in waiting
    assert "its circuit is open" in lines
    assert "To do: check the cable" in lines
    assert max(map(len, lines)) <= 80
    assert not any("To do" in line for line in shown([BOILER], view, why=VERDICT | {"state": "ok"}))
    view.press("esc", [BOILER])
    assert not view.detail


STOPPED = HOUSE._replace(prefix="my garden", state="stopped", heard=240.0, devices=10)
LEFT = PUMP._replace(prefix="my garden", status="stopped", error="DeviceTimeout: no answer")


def test_an_app_that_was_stopped_is_one_line_at_the_end_and_no_trouble():
    head = HEAD._replace(options=" --mqtt mqtt://broker.lan")
    lines = shown([ATTIC, LEFT], apps=(HOUSE, STOPPED), head=head)

    assert "1 device, all is well" in lines[0]
    assert not [line for line in lines if "pump" in line or "no answer" in line]
    assert lines[-2] == "stopped: my garden"
    assert "leadsman clean" not in "".join(lines)
    assert [line for line in lines if line.startswith("> attic")], "one app is left, so its prefix says nothing"


def test_the_cursor_reaches_no_device_of_a_stopped_app():
    view, rows = BoardView(), [ATTIC, LEFT]
    for key in ("down", "page-down", "enter"):
        shown(rows, view, apps=(HOUSE, STOPPED))
        view.press(key, rows)

    assert view.chosen == ("house", "attic")


def test_a_node_that_was_stopped_is_forgotten_by_its_app():
    (line,) = plain([STOPPED._replace(prefix="house/nodes/pi 1")], [], 120, " --mqtt mqtt://b")

    assert "; leadsman cluster forget 'pi 1' --mqtt mqtt://b --prefix house removes it" in text_of(line, colour=False)


def test_of_many_apps_that_were_stopped_some_are_named():
    apps = [STOPPED._replace(prefix=f"garden{number}") for number in range(9)]

    lines = [text_of(line, colour=False) for line in plain(apps, [LEFT], 120)]

    assert len(lines) == 7
    assert lines[0] == "garden0 stopped 4m ago, 10 devices; leadsman clean --prefix garden0 --all removes it"
    assert lines[-1] == "… and 3 other stopped apps"


def test_an_app_that_broke_off_stays_where_it_is():
    lines = shown([ATTIC, PUMP._replace(status="offline")], apps=(HOUSE, STOPPED._replace(state="offline")))

    assert "1 in trouble" in lines[0]
    assert lines[2].startswith("my garden        offline")


@pytest.mark.parametrize(("width", "shows"), [(80, "mqtt://…"), (60, ""), (120, "mqtt://user@broker")])
def test_the_url_of_the_broker_gives_way_and_the_count_stays(width, shows):
    url = "mqtt://user@broker.of-a-provider.example.com:1883"
    first, *_ = shown([ATTIC, BOILER], size=(width, 24), head=HEAD._replace(broker=url))

    assert "2 devices, 1 in trouble" in first
    assert ("mqtt" in first) is bool(shows)
    assert "9:00" in first


def test_no_device_at_all_is_said():
    assert any("no device" in line for line in shown([], apps=()))


def test_colour_is_for_a_terminal_only():
    line = [("attic", "bold"), ("ok", "ok")]

    assert text_of(line, colour=True) == "\x1b[1mattic\x1b[0m\x1b[32mok\x1b[0m"
    assert text_of(line, colour=False) == "atticok"


def test_the_plain_board_has_all_devices():
    lines = [text_of(line, colour=False) for line in plain([HOUSE], [ATTIC, BOILER], 100)]

    assert len(lines) == 5
    assert lines[2].startswith("  attic")


def test_an_error_on_the_plain_board_is_whole():
    error = (
        "DeviceUnavailable: /dev/serial/by-id/usb-meter cannot be opened: the port does not exist; is it plugged in?"
    )

    lines = [text_of(line, colour=False) for line in plain([HOUSE], [BOILER._replace(error=error)], 60)]

    assert " ".join(map(str.strip, lines[3:])) == f"for 3m10s, 5 failed polls, attempt 2: {error}"
    assert max(map(len, lines)) <= 60


@pytest.mark.parametrize(
    ("sent", "keys"),
    [
        ("q", ["q"]),
        ("\x1b[A\x1bOBj", ["up", "down", "j"]),
        ("\x1b", ["esc"]),
        ("\x1b[5~\r\x7f\x03", ["page-up", "enter", "backspace", "ctrl-c"]),
        ("\x1b[15~q\x1b[1;5At\x1bOP", ["q", "t"]),
    ],
)
def test_what_a_terminal_sends_becomes_keys(sent, keys):
    assert keys_of(sent) == keys


TEXT = st.text(max_size=120)
ROWS = st.builds(
    DeviceRow,
    st.sampled_from(["house", "garden", "\x1b]0;title\x07"]),
    TEXT,
    st.sampled_from(["ok", "error", "held", "odd", "\x1b[2J"]),
    TEXT,
    st.none() | st.floats(0, 1e12),
    st.none() | st.floats(0, 1e12),
    st.integers(0, 10**6),
    st.integers(0, 99),
    st.none() | st.floats(0, 1e12),
    TEXT,
    st.sampled_from(["closed", "open", "half_open"]),
)
KEYS = st.sampled_from(["up", "down", "page-down", "enter", "esc", "s", "t", "/", "a", "backspace", "q"])


@given(st.lists(ROWS, max_size=30), st.lists(KEYS, max_size=10), st.integers(1, 200), st.integers(1, 60), st.booleans())
def test_it_fits_every_terminal_whatever_is_typed(rows, keys, width, height, lost):
    view = BoardView()
    for key in keys:
        view.of(rows)
        view.press(key, rows)

    lines = shown(rows, view, (width, height), head=HEAD._replace(lost="gone" if lost else None), why=VERDICT)

    assert len(lines) <= height
    assert [line for line in lines if clip(line, width) != line] == []
    assert all(line.isprintable() for line in lines)


@given(st.lists(ROWS, max_size=5), TEXT)
def test_nothing_on_the_plain_board_drives_the_terminal(rows, prefix):
    lines = [text_of(line, colour=False) for line in plain([HOUSE._replace(prefix=prefix)] * 2, rows, 100)]

    assert all(line.isprintable() for line in lines)


def test_the_nodes_of_an_app_are_counted():
    (line, *_) = plain([HOUSE._replace(nodes="1 active, 2 standby")], [], 120)
    assert "nodes: 1 active, 2 standby" in text_of(line, colour=False)
    assert "nodes" not in text_of(plain([HOUSE], [], 120)[0], colour=False)
