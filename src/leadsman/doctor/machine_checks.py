"""Checks of the machine and of the devices that are attached to it."""

import stat
from collections.abc import Iterator

from leadsman.doctor.facts import BluetoothFacts, Facts, SerialFacts
from leadsman.doctor.findings import Result, fail, ok, unknown, warn
from leadsman.text import clean
from leadsman.timing.clock import rfc3339

MIB = 1024 * 1024
LITTLE, NEARLY_NONE = 200 * MIB, 10 * MIB
"""Bytes of free disk. Logs and SQLite's journal need some."""
LONG_AGO = 1_767_225_600.0
"""Epoch seconds of 2026-01-01: a clock that is behind it was never set."""


def libraries(facts: Facts) -> Iterator[Result]:
    """Whether the libraries that the adapters need are installed."""
    for line in facts.subject.missing:
        what, _, advice = line.partition("; ")
        yield fail(what, advice or "install it")


def serial_ports(facts: Facts) -> Iterator[Result]:
    """Whether the ports exist, may be used, and are not used by others."""
    for port in facts.serial:
        yield _serial_port(port)
        if port.stable is not None:
            yield warn(f"{port.name} may name another device after the next start", f"write {port.stable}")


def _serial_port(port: SerialFacts) -> Result:
    name = clean(port.name)
    if port.fault is not None:
        return fail(f"{name}: {port.fault}", "mend the name of the gateway, or its DNS")
    if "://" in port.name:
        return ok(f"{name}: the name has an address; a gateway is not connected to, since many serve only one")
    if not port.exists:
        there = f"; there are {', '.join(port.present[:3])}" if port.present else ""
        return fail(f"{name} does not exist{there}", "plug the device in, or name another port; dmesg shows what came")
    if not port.device:
        return fail(f"{name} is not a serial port", "name a port such as /dev/serial/by-id/usb-…")
    if not port.allowed:
        advice = f"sudo usermod -aG {port.group} $USER, then log in again"
        if port.member:
            advice = f"let the group {port.group} read and write it: a udev rule with MODE=0660"
        return fail(f"{name} may not be opened by this user", advice)
    if len(port.holders) > 1:
        return fail(f"{name} is open in {', '.join(port.holders)}", "let only one program read the port")
    if port.holders:
        return ok(f"{name} is open in {port.holders[0]}; is that the app?")
    return ok(f"{name} is there, and may be opened")


def bluetooth(facts: Facts) -> Iterator[Result]:
    """Whether BlueZ runs, and the adapter has power."""
    for radio in facts.bluetooth:
        yield _bluetooth(radio)


def _bluetooth(radio: BluetoothFacts) -> Result:
    if radio.blocked == "hard":
        return fail("the radio is switched off", "switch it on: a key of the machine, or its firmware")
    if radio.blocked == "soft":
        return fail("the radio is blocked", "rfkill unblock bluetooth")
    if radio.fault is not None:
        return fail(radio.fault, "systemctl start bluetooth; in a container, mount /run/dbus")
    if not radio.adapters:
        return fail("BlueZ has no adapter", "plug one in; bluetoothctl list shows those that BlueZ knows")
    wanted = radio.wanted or min(radio.adapters)
    if wanted not in radio.adapters:
        return fail(f"there is no adapter {clean(wanted)!r}", f"write one of {', '.join(sorted(radio.adapters))}")
    if not radio.adapters[wanted]:
        return fail(f"{wanted} has no power", "bluetoothctl power on")
    return ok(f"BlueZ answers, and {wanted} has power")


def calendars(facts: Facts) -> Iterator[Result]:
    """Whether the calendar servers accept the user."""
    for each in facts.calendars:
        if each.fault is None:
            yield ok(f"{each.resource.name} accepts the user")
        else:
            yield fail(each.fault, "open the address in a browser; mend url, username and password")


def versions(facts: Facts) -> Iterator[Result]:
    """The versions of Python and leadsman."""
    if facts.machine is not None:
        yield ok(f"Python {facts.machine.python}, leadsman {facts.machine.leadsman}")


def clock(facts: Facts) -> Iterator[Result]:
    """Whether the clock is set, and follows a time server."""
    machine = facts.machine
    if machine is None:
        return
    if machine.now < LONG_AGO:
        yield fail(f"the clock says {rfc3339(machine.now)}", "set it: timedatectl set-ntp true")
    elif machine.synchronised is None:
        yield unknown("the kernel does not say whether the clock follows a time server")
    elif machine.synchronised:
        yield ok("it follows a time server")
    else:
        yield warn("it follows no time server: readings get wrong times", "timedatectl set-ntp true")


def time_zone(facts: Facts) -> Iterator[Result]:
    """Whether the time zone is known."""
    machine = facts.machine
    if machine is None:
        return
    if machine.zone is not None:
        yield ok(machine.zone)
    else:
        yield warn(
            machine.zone_fault or "it has no name", "timedatectl set-timezone Europe/Berlin, or TZ=Europe/Berlin"
        )


def disk(facts: Facts) -> Iterator[Result]:
    """Whether there is space."""
    for each in facts.machine.disks if facts.machine is not None else ():
        text = f"{each.free // MIB} MiB free at {each.path}"
        advice = "make room: journalctl --vacuum-size=100M, apt-get clean"
        yield fail(text, advice) if each.free < NEARLY_NONE else warn(text, advice) if each.free < LITTLE else ok(text)


def state(facts: Facts) -> Iterator[Result]:
    """Whether the state of the app can be written, by it alone."""
    found = None if facts.machine is None else facts.machine.state
    if found is None:
        return
    if not found.writable:
        what = "may not be written by this user" if found.exists else "does not exist, and cannot be made by this user"
        yield fail(f"{found.path} {what}", "run the doctor as the user of the app, or set STATE_DIRECTORY")
    elif found.exists and found.mode & (stat.S_IWGRP | stat.S_IWOTH):
        yield warn(f"others may write to {found.path} ({found.mode:03o})", f"chmod 700 {found.path}")
    else:
        yield ok(f"{found.path} " + ("can be written" if found.exists else "will be made"))


def unfinished(facts: Facts) -> Iterator[Result]:
    """What did not come to an end."""
    for name, why in facts.unfinished.items():
        yield fail(f"{name}: {why}", "run the doctor again; if it stays, see whether this part of the machine hangs")
