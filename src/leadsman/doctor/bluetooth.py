"""Collects facts about Bluetooth from BlueZ over D-Bus, and from rfkill. It does not scan, so it does not disturb a
running app. Only this file imports dbus-fast, which comes with bleak."""

import contextlib
from pathlib import Path

from leadsman.doctor.facts import BluetoothFacts
from leadsman.text import describe

_ADAPTER = "org.bluez.Adapter1"


async def look(wanted: str, rfkill: Path = Path("/sys/class/rfkill")) -> BluetoothFacts:
    """Ask BlueZ for its adapters.

    Args:
        wanted: the name of the adapter that the app uses; empty for any.
        rfkill: where the kernel lists its switches.
    """
    blocked = switch(rfkill)
    try:
        from dbus_fast import BusType, Message, MessageType
        from dbus_fast.aio import MessageBus
    except ImportError as error:
        return BluetoothFacts(wanted, {}, f"D-Bus cannot be asked: {error.name} is not installed", blocked)
    try:
        bus = await MessageBus(bus_type=BusType.SYSTEM).connect()
    except Exception as error:  # no socket, or nobody behind it
        return BluetoothFacts(wanted, {}, f"D-Bus does not answer: {describe(error)}", blocked)
    try:
        request = Message(
            destination="org.bluez",
            path="/",
            interface="org.freedesktop.DBus.ObjectManager",
            member="GetManagedObjects",
        )
        reply = await bus.call(request)
    finally:
        bus.disconnect()
    if reply.message_type is MessageType.ERROR:
        return BluetoothFacts(wanted, {}, f"BlueZ does not answer: {reply.error_name}", blocked)
    adapters = {
        str(path).rpartition("/")[2]: bool(interfaces[_ADAPTER]["Powered"].value)
        for path, interfaces in reply.body[0].items()
        if _ADAPTER in interfaces
    }
    return BluetoothFacts(wanted, adapters, None, blocked)


def switch(rfkill: Path) -> str | None:
    """``hard`` or ``soft`` if every Bluetooth radio is blocked, else None."""
    found = []
    for each in sorted(rfkill.glob("rfkill*")):
        with contextlib.suppress(OSError):
            if (each / "type").read_text().strip() == "bluetooth":
                states = {kind: (each / kind).read_text().strip() == "1" for kind in ("hard", "soft")}
                found.append(next((kind for kind, on in states.items() if on), None))
    return found[0] if found and None not in found else None
