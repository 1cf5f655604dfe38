"""`leadsman ble scan` with real bleak over a real D-Bus, on a terminal and elsewhere."""

import json
import os
import signal
import subprocess
import sys
import termios
import tomllib

import pytest

from leadsman.tools.cli.advertisers import BIND_KEY
from leadsman_rigs.bluez import Air, GattServer, Scripted
from leadsman_rigs.terminal import Terminal

SCAN = [sys.executable, "-m", "leadsman", "ble", "scan"]
BTHOME, WAVE, ODD = "F0:11:22:33:44:55", "F0:11:22:33:44:66", "F0:11:22:33:44:77"
SEALED = "F0:11:22:33:44:88"


@pytest.fixture
def air():
    with Air() as air:
        air.place(
            Scripted(BTHOME, "ATC_1A2B3C", service_data={"fcd2": bytes.fromhex("4002ca0903bf13")}),
        )
        air.place(GattServer(WAVE, "wave", {"181a": {"2a6e": b"\x66\x08"}}, manufacturer={0x0334: b"abc"}))
        air.place(Scripted(ODD, "\x1b[31m\u202eevil" + "x" * 5000))
        yield air


@pytest.fixture
def terminal(air):
    opened = []

    def start(*arguments):
        opened.append(Terminal([*SCAN, *arguments]))
        return opened[-1]

    yield start
    for each in opened:
        each.close()


def scan(*arguments, code=0, **environment):
    done = subprocess.run(
        [*SCAN, *arguments], capture_output=True, text=True, timeout=120, env={**os.environ, **environment}
    )
    assert (done.returncode, "Traceback (most" in done.stderr) == (code, False), done.stderr
    assert "\x1b" not in done.stdout + done.stderr
    return done


def test_the_table_shows_what_is_in_the_air_and_the_settings_stay_when_it_is_left(terminal):
    screen = terminal()
    table = screen.wait_for(
        "ATC_1A2B3C", "bthome", "fcd2", "181a 0x0334", "\\x1b[31m\\u202e", "3 devices, 1 recognised"
    )
    assert all(len(line) <= 79 for line in table)
    assert table[2].startswith(f"> {BTHOME}")
    assert f'address = "{BTHOME}"' in table
    assert f"\x1b[32m{BTHOME}" in screen.text  # colour, on a terminal

    screen.press("\x1b[B")
    screen.wait_for(f"> {WAVE}", f'address = "{WAVE}"', without=[f'address = "{BTHOME}"'])

    screen.press("q")
    assert screen.ended() == 0
    _, left = screen.text.rsplit("\x1b[?25h\x1b[?1049l", 1)
    settings, _ = left.replace("\r", "").rsplit("\n\n", 1)
    assert tomllib.loads(settings) == {"sensors": {"atc-1a2b3c-4455": {"address": BTHOME}}}
    assert termios.tcgetattr(screen.follower) == screen.before
    assert "Traceback (most" not in screen.text


@pytest.mark.parametrize("leave", [lambda it: it.press("\x03"), lambda it: it.process.send_signal(signal.SIGINT)])
def test_ctrl_c_ends_it_cleanly(terminal, leave):
    screen = terminal()
    screen.wait_for("3 devices")

    leave(screen)

    assert screen.ended() == 0
    assert termios.tcgetattr(screen.follower) == screen.before
    assert "Traceback (most" not in screen.text


def test_a_service_that_dies_ends_the_screen_with_what_to_do(terminal, air):
    screen = terminal()
    screen.wait_for("3 devices")

    air.call(air.daemon.stop())

    assert screen.ended() == 1
    assert "is bluetoothd running?" in screen.text
    assert f'address = "{BTHOME}"' in screen.text.rsplit("\x1b[?1049l", 1)[1]
    assert termios.tcgetattr(screen.follower) == screen.before


def test_elsewhere_each_device_is_a_line_and_the_settings_follow(air):
    done = scan("--for", "3s")

    lines, settings = done.stdout.split("\n\n", 1)
    assert sorted(line.split("  ")[0] for line in lines.splitlines()) == [BTHOME, WAVE, ODD]
    (line,) = [line for line in lines.splitlines() if line.startswith(f"{BTHOME}  -60 dBm  ATC_1A2B3C  bthome ")]
    assert line.endswith("  fcd2")
    assert tomllib.loads(settings)["sensors"]["atc-1a2b3c-4455"] == {"address": BTHOME}
    assert "3 devices, 1 recognised" in done.stderr


def test_a_program_gets_an_object_for_each_device(air):
    found = {each["address"]: each for each in map(json.loads, scan("--for", "3s", "--json").stdout.splitlines())}

    assert set(found) == {BTHOME, WAVE, ODD}
    assert found[BTHOME]["service_data"] == {"0000fcd2-0000-1000-8000-00805f9b34fb": "4002ca0903bf13"}
    assert (found[BTHOME]["decoder"], found[WAVE]["decoder"], found[WAVE]["name"]) == ("bthome", None, "wave")
    assert found[WAVE]["manufacturer"] == {"0x0334": "616263"}
    assert tomllib.loads(found[WAVE]["settings"]) == {"sensors": {"wave-4466": {"address": WAVE}}}


def test_a_sensor_that_encrypts_has_a_line_for_its_key_and_a_missing_extra_is_named(air):
    air.place(Scripted(SEALED, "sealed", service_data={"fcd2": bytes.fromhex("41a47266c95f730011223378237214")}))
    hidden = "import sys; sys.modules['bthome_ble'] = None; sys.argv[0] = 'leadsman'"
    code = f"{hidden}; from leadsman.__main__ import main; raise SystemExit(main())"

    for command in (SCAN, [sys.executable, "-c", code, "ble", "scan"]):
        done = subprocess.run([*command, "--for", "3s"], capture_output=True, text=True, timeout=120)
        assert f'address = "{SEALED}"\n{BIND_KEY}\n' in done.stdout
        assert done.stdout.count(BIND_KEY) == 1
        assert "2 recognised" in done.stderr
        assert ('pip install "leadsman[ble-decoders]"' in done.stderr) is (command is not SCAN)


def test_without_an_end_it_prints_until_ctrl_c(air):
    process = subprocess.Popen(SCAN, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    first = process.stdout.readline()
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=60)

    assert (process.returncode, "Traceback (most" in err) == (0, False)
    assert first.startswith("F0:11:22:33:44:")
    assert f'address = "{BTHOME}"' in out


def test_a_reader_that_has_seen_enough_is_no_traceback(air):
    line = f"{' '.join(SCAN)} --for 2s | head -1"
    done = subprocess.run(["bash", "-c", line], capture_output=True, text=True, timeout=120)

    assert (len(done.stdout.splitlines()), "Traceback (most" in done.stderr) == (1, False)


def test_nothing_in_the_air_is_an_error_with_what_to_look_at(air):
    air.call(air.peers[WAVE].leave())
    air.peers.clear()

    assert "is a sensor in range and awake" in scan("--for", "1s", code=1).stderr


def test_each_reason_why_nothing_can_be_heard_has_its_remedy(air):
    assert "bluetoothctl list" in scan("--adapter", "hci9", code=1).stderr
    air.daemon.refuses = "org.freedesktop.DBus.Error.AccessDenied"
    assert "add the user to the group bluetooth" in scan(code=1).stderr
    air.daemon.refuses = None
    air.call(air.daemon.power(False))
    assert "bluetoothctl power on" in scan(code=1).stderr
    air.call(air.daemon.stop())
    assert "systemctl start bluetooth" in scan(code=1).stderr
    assert "is bluetoothd running?" in scan(code=1, DBUS_SYSTEM_BUS_ADDRESS="unix:path=/nowhere/bus").stderr
