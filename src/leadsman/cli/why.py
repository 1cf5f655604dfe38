"""``leadsman why``: asks a running app and its broker why a device is silent."""

import json
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, cast

from leadsman.cli.payloads import object_in
from leadsman.cli.remote import look, retained
from leadsman.cli.tables import table
from leadsman.cli.target import UsageError
from leadsman.errors import BrokerError
from leadsman.introspection.situation import Retained
from leadsman.introspection.why import refused, silent, unanswered, why
from leadsman.mqtt.broker import Broker
from leadsman.mqtt.connection import Received
from leadsman.mqtt.topics import Topics
from leadsman.text import clean, counted, escaped, suggestion

if TYPE_CHECKING:
    from leadsman.introspection.document import Introspection
    from leadsman.introspection.explanations import Verdict


def prefix_of(broker: Broker, device: str | None) -> str:
    """The prefix of the app that has a device, or of the only app, as the registries at the broker say.

    Raises:
        BrokerError: the broker cannot be reached.
        UsageError: there is no such app, or there are several.
    """
    found: dict[str, set[str]] = {}
    for topic, message in retained(broker, ("+/registry", "+/registry/+", "+/status")).items():
        prefix, level, *_ = topic.split("/")
        document = object_in(message.payload) if level == "registry" else None
        if document is not None and isinstance(document.get("devices"), dict):
            found.setdefault(prefix, set()).update(cast("dict[str, object]", document["devices"]))
    having = sorted(prefix for prefix, devices in found.items() if device is None or device in devices)
    if len(having) == 1:
        return having[0]
    if having:
        raise UsageError(
            f"{counted(len(having), 'app')} come into question; write --prefix {' or --prefix '.join(having)}"
        )
    if not found:
        raise UsageError(f"no app has published a registry at {broker}; write --prefix, or --app MODULE:APP")
    known = {name for devices in found.values() for name in devices}
    raise UsageError(f"no app at {broker} has a device {clean(device or '')!r}; {suggestion(device or '', known)}")


def verdicts(broker: Broker, prefix: str, device: str | None, timeout: float) -> "list[Verdict]":
    """The verdict about one device, or those about all devices that are silent. If the app does not answer, there is
    one verdict, from what the broker retains.

    Raises:
        BrokerError: the app refuses to answer, and not because it does not know the device.
    """
    topics = Topics(prefix)
    request = {} if device is None else {"devices": [device]}
    of = device or "+"
    try:
        found = look(
            broker, topics.introspect, request, timeout, (topics.state(of), topics.availability(of)), topics.status
        )
    except BrokerError as error:
        return [unanswered(device or "", prefix, None, str(error), datetime.now(UTC))]
    if found.data is None:
        reason, name = found.error or "", device or ""
        if found.refused:
            if device is None or not reason.startswith("there is no device"):
                raise BrokerError(reason)
            return [refused(name, prefix, reason)]
        return [unanswered(name, prefix, _retained(topics, name, found.seen), reason, datetime.now(UTC))]
    document = cast("Introspection", found.data)
    if device is not None:
        return [why(device, document, _retained(topics, device, found.seen))]
    return silent(document, {name: _retained(topics, name, found.seen) for name in document.get("devices", {})})


def show(found: "Sequence[Verdict]", device: str | None, *, as_json: bool) -> None:
    """Print verdicts, for a program or for a person."""
    if as_json:
        print(json.dumps(found[0] if device is not None else found, indent=2, ensure_ascii=False))
    elif device is None and len(found) > 1:
        print(table(("device", "link", "since", "why"), [_row(each) for each in found]))
        print(f"\n{counted(len(found), 'device')} silent; leadsman why DEVICE has the evidence, and what to do.")
    elif not found:
        print("No device is silent.")
    for each in found if not as_json and (device is not None or len(found) == 1) else ():
        print("\n".join(lines(each)))


def lines(verdict: "Verdict") -> list[str]:
    """A verdict for a person: what it is, the evidence, and what to do."""
    name = f"{clean(verdict['device'])}: " if verdict["device"] else ""
    since = f", since {_time(verdict['since'])}" if verdict["since"] and verdict["state"] != "ok" else ""
    head = f"{name}{verdict['summary']}{since}"
    advice = [] if verdict["state"] == "ok" else [f"To do: {verdict['advice']}"]
    return [escaped(line) for line in (head, *(f"  {each}" for each in verdict["evidence"]), *advice)]


def _row(verdict: "Verdict") -> tuple[str, ...]:
    return clean(verdict["device"]), verdict["link"], _time(verdict["since"]), verdict["summary"]


def _time(text: str | None) -> str:
    return "" if text is None else clean(text[:19].replace("T", " ") + "Z")


def _retained(topics: Topics, device: str, seen: Mapping[str, Received]) -> Retained:
    """What the broker retains of a device."""
    state, availability = seen.get(topics.state(device)), seen.get(topics.availability(device))
    status = seen.get(topics.status)
    return Retained(
        None if status is None else object_in(status.payload),
        None if state is None else state.payload.decode(errors="replace"),
        None if availability is None else availability.payload.decode(errors="replace"),
        None if state is None else state.taken_at,
    )
