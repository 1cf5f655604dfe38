"""``leadsman inspect``: the registrations of an app, or the state of a running one."""

import argparse
import json
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, cast

from leadsman._version import UNVERSIONED, __version__
from leadsman.app import App
from leadsman.errors import LeadsmanError
from leadsman.introspection.registrations import describe_registration
from leadsman.introspection.registry import About, app_section, declared
from leadsman.introspection.requests import ON_REQUEST, SECTIONS
from leadsman.introspection.situation import span
from leadsman.loop.clock import rfc3339
from leadsman.loop.durations import human
from leadsman.loop.schedule import zone_of
from leadsman.registration.injection import name_of
from leadsman.registration.telemetry import THROTTLE
from leadsman.text import clean, count_noun
from leadsman.text.suggestion import suggestion
from leadsman.tools.cli.arguments import JSON, OF_LIVE, ONLY_DEVICES, Subcommand, argument, switch
from leadsman.tools.cli.commands import gaps
from leadsman.tools.cli.commands.trace import print_rows
from leadsman.tools.cli.remote import any_version, ask_about_devices, take_names
from leadsman.tools.cli.tables import json_text, print_text, table
from leadsman.tools.cli.target import load_app
from leadsman.tools.cli.times import local, zone

if TYPE_CHECKING:
    from leadsman.introspection.document import (
        AdapterSection,
        AppSection,
        DeviceSection,
        FieldTerms,
        Introspection,
        MqttSection,
        Recent,
        Registered,
        Runtime,
    )
    from leadsman.monitoring.document import Counters


def run(options: argparse.Namespace) -> None:
    """Show the registrations of an app, or the state of a running one."""
    if (options.named or options.target is not None) and not (options.live or options.prefix):
        take_names(options, app_first=True)
        app = load_app(options)
        show(select(registrations(app), options.section, options.device), as_json=options.json)
        if not (options.json or options.section or options.device):
            show_plans(app)
        return

    answer = ask_about_devices(options, {"sections": options.section} if options.section else {})
    with any_version():
        show(answer, as_json=options.json)


def registrations(app: App) -> "Introspection":
    """The document of an app that does not run: its registrations."""
    about = About(app.name, app.version, __version__, app.topics, app.client_id)
    known = declared(app.telemetries, app.sources, app.commands)
    found: dict[str, DeviceSection] = {
        name: {"registrations": [*map(describe_registration, each.registrations)]} for name, each in known.items()
    }
    return {
        "app": app_section(about),
        "devices": {name: each for name, each in found.items() if not known[name].job},
        "jobs": {name: each for name, each in found.items() if known[name].job},
    }


def select(document: "Introspection", sections: list[str] | None, devices: list[str] | None) -> "Introspection":
    """The document with these sections and these devices only. None selects all.

    Raises:
        LeadsmanError: the document has no such section or device.
    """
    for section in sections or ():
        if section not in document:
            raise LeadsmanError(f"only a running app has the section {section!r}; write --live as well")
    known = [*document["devices"], *document["jobs"]]
    for device in devices or ():
        if device not in known:
            raise LeadsmanError(f"there is no device {clean(device)!r}; {suggestion(device, known)}")
    found = document.copy()
    if devices:
        found["devices"] = {name: each for name, each in document["devices"].items() if name in devices}
        found["jobs"] = {name: each for name, each in document["jobs"].items() if name in devices}
    return cast("Introspection", {name: each for name, each in found.items() if not sections or name in sections})


def show(document: "Introspection", *, as_json: bool) -> None:
    """Print a document, for a program or for a person."""
    if as_json:
        print(json_text(document, indent=2))
        return
    if "app" in document:
        _show_app(document["app"])
    if "mqtt" in document:
        _show_mqtt(document["mqtt"])
    for adapter in document.get("adapters", ()):
        _show_adapter(adapter)
    sections = [("device", document.get("devices", {})), ("side job", document.get("jobs", {}))]
    live = any("runtime" in each for _, devices in sections for each in devices.values())
    for title, devices in sections:
        if devices:
            print()
            print(_runtime_table(title, devices, _now(document)) if live else _registration_table(title, devices))
    if "fields" in document:
        print("\n" + _fields_table(document["fields"]))
    if "recent" in document:
        rows = [_recent_row(name, recent) for name, recent in document["recent"].items()]
        print("\n" + table(("device", f"read at ({zone()})", "last values", "last polls"), rows))
    if "ledger" in document:
        print()
        gaps.show(document["ledger"], as_json=False)
    if "trace" in document:
        print()
        print_rows(document["trace"])


def show_plans(app: App) -> None:
    """Print when devices with a cron schedule are polled next, and what the app subscribes to."""
    now, lines = time.time(), list[str]()
    for name, each in app.telemetries.items():
        if each.cron is not None and each.enabled:
            due = datetime.fromtimestamp(each.cron.after(now), zone_of(each.cron.zone))
            start = "at the start of the app, and then" if each.cron.at_start else "next"
            zone_name = each.cron.zone or "the zone of this machine"
            lines.append(f"{clean(name)} is polled {start} on {due:%A %Y-%m-%d at %H:%M} ({zone_name})")
    for topics, subscription in app.setup.registry.subscriptions.items():
        if subscription.enabled:
            fed = f", which feeds {clean(subscription.device)}" if subscription.device else ""
            lines.append(f"messages at {clean(topics)} go to {name_of(subscription.handler)}{fed}")
    if lines:
        print()
    for line in lines:
        print_text(line)


def _fields_table(devices: "Mapping[str, Mapping[str, FieldTerms]]") -> str:
    rows = [
        (
            clean(device),
            clean(field),
            clean(terms.get("name", "–")),
            terms.get("unit", "–"),
            terms.get("device_class", "–"),
            str(terms.get("precision", "–")),
        )
        for device, fields in devices.items()
        for field, terms in fields.items()
    ]
    return table(("device", "field", "name", "unit", "device class", "decimals"), rows)


def _show_app(app: "AppSection") -> None:
    uptime = f", up {human(round(app['uptime']))}" if "uptime" in app else ""
    versions = f"leadsman {app['leadsman']}, Python {app['python']}"
    version = "" if app["version"] == UNVERSIONED else f" {app['version']}"
    print_text(f"{app['name']}{version} at {app['prefix']}/{uptime} ({versions})")
    if "node" in app:
        node = app["node"]
        takeovers = count_noun(node["takeovers"], "takeover")
        since = f"active since {local(node['since'])} ({zone()})"
        print_text(f"node {node['name']}: {since}, token {node['token']}, {takeovers}")
    for each in app.get("nodes", []):
        if each["node"] != app.get("node", {}).get("name"):
            print_text(f"node {each['node']}: {each['state'].replace('_', ' ')}")
    for file, error in app.get("state_files", {}).items():
        print_text(f"state file {clean(file)} cannot be written: {clean(error)}")


def _show_mqtt(mqtt: "MqttSection") -> None:
    outbox = mqtt["outbox"]
    oldest = f", the oldest for {outbox['oldest']:.0f} s" if outbox["oldest"] else ""
    counts = f"{count_noun(mqtt['connects'], 'connection')}, {count_noun(outbox['delivered'], 'message')} delivered"
    waiting = f"{count_noun(outbox['messages'], 'message')} waiting{oldest}"
    print_text(f"broker {mqtt['broker']}: MQTT {mqtt['protocol']}, {counts}, {waiting}")
    for each in mqtt.get("brokers", ()):
        if each["broker"] != mqtt["broker"]:
            print_text(f"other broker {each['broker']}: {each['last_error'] or 'not tried yet'}")
    if outbox["dropped"]:
        print_text(f"dropped: {count_noun(outbox['dropped'], 'message')}")
    if mqtt["limited_by"]:
        allowed = f"the broker allows {count_noun(mqtt['window'], 'message')} in flight (Receive Maximum)"
        print_text(f"readings come faster than the broker takes them, and arrive late: {allowed}")
    if mqtt["last_error"]:
        print_text(f"last error: {clean(mqtt['last_error'])}")
    for topics, heard in mqtt.get("subscriptions", {}).items():
        numbers = f"{heard['received']} received, {heard['failed']} failed, {heard['dropped']} dropped"
        error = f"; last error: {clean(heard['last_error'])}" if heard["last_error"] else ""
        print_text(f"messages at {clean(topics)}: {numbers}{error}")


def _show_adapter(adapter: "AdapterSection") -> None:
    state = "open" if adapter["open"] else f"not open: {clean(adapter['error'] or 'opening')}"
    found = {
        name: value for name, value in adapter.get("health", {}).items() if name == "silent_for" or value is not None
    }
    health = "".join(f", {_condition(name, value)}" for name, value in found.items() if name != "opened")
    print_text(f"adapter {adapter['adapter']}: {state}, reopened {count_noun(adapter['reopened'], 'time')}{health}")


def _condition(name: str, value: object) -> str:
    """What an adapter reports of itself, for a person."""
    if name == "silent_for":
        return f"received nothing for {span(value)}" if isinstance(value, int | float) else "received nothing yet"
    shown = str(value) if not isinstance(value, bool) else "yes" if value else "no"
    return f"{name.replace('_', ' ')}: {clean(shown)}"


def _registration_table(title: str, devices: dict[str, "DeviceSection"]) -> str:
    """The registrations. A column that is empty in every row is left out."""
    registered = [(name, each) for name, device in devices.items() for each in device["registrations"]]
    columns = {
        title: [name for name, _ in registered],
        **{head: [cell(each) for _, each in registered] for head, cell in _COLUMNS.items()},
    }
    shown = {head: cells for head, cells in columns.items() if any(cells)}
    return table(tuple(shown), list(zip(*shown.values(), strict=True)))


def _schedule(each: "Registered") -> str:
    interval = each.get("interval")
    return each.get("schedule") or (f"every {human(interval)}" if interval else "")


def _retries(each: "Registered") -> str:
    if each["kind"] in ("source", "event"):
        return "restarted"
    where = each.get("policy_where", {}).items()
    names = ", ".join(name if words is None else f"{name} where {words}" for name, words in where)
    if (policy := names or each.get("policy_name") or each.get("policy")) is not None:
        return clean(policy) if len(policy) <= MAX_POLICY_CHARS else f"{clean(policy)[: MAX_POLICY_CHARS - 1]}…"
    if "retry" not in each:
        return ""
    limits = (("budget", each.get("budget")), ("within", each.get("within")))
    bounds = "".join(f", {name} {human(limit)}" for name, limit in limits if limit is not None)
    return f"{each['retry']} on {', '.join(each['retry_on'])}{bounds}" if each["retry"] else "none"


def _breaker(each: "Registered") -> str:
    rule = each.get("circuit_breaker")
    if rule is None:
        return ""
    shared = f", shared {rule['shared']}" if rule["shared"] else ""
    return f"after {rule['threshold']}{shared}" + (f", ignores {', '.join(rule['ignore'])}" if rule["ignore"] else "")


def _kept(each: "Registered") -> str:
    """Which readings arrive after an outage, unless all of them do at the state topic. Empty for an older app."""
    delivery = each.get("delivery")
    if delivery is None or "keep" not in delivery:
        return ""
    history, expiry = delivery["history"], delivery["expiry"] if each["kind"] == "event" else None
    words = [f"history {human(history)}" if history else "newest" if delivery["keep"] == "newest" else ""]
    words += [] if expiry is None else [f"for {human(expiry)}"]
    return ", ".join(filter(None, words))


def _apart(each: "Registered") -> str:
    """The shortest time between two requested polls, unless it is the one that nearly all have."""
    throttle = each.get("throttle", THROTTLE)
    return "" if throttle == THROTTLE else human(throttle)


def _length(seconds: float | None) -> str:
    return human(seconds) if seconds else ""


MAX_POLICY_CHARS = 60
"""Characters of a policy in a table; ``--json`` prints all of it."""
_COLUMNS: Mapping[str, Callable[["Registered"], str]] = {
    "kind": lambda each: each["kind"] + ("" if each["enabled"] else " (off)"),
    "when": _schedule,
    "retries": _retries,
    "breaker": _breaker,
    "timeout": lambda each: _length(each.get("timeout")),
    "publish": lambda each: each.get("publish") or "",
    "keep": _kept,
    "group": lambda each: each.get("group") or "",
    "stale after": lambda each: _length(each.get("stale_after")),
    "throttle": _apart,
    "request": lambda each: each.get("request", ""),
    "needs": lambda each: ", ".join(each["needs"]),
}


def _runtime_table(title: str, devices: dict[str, "DeviceSection"], now: datetime) -> str:
    heads = (
        title,
        "status",
        "circuit",
        "failures",
        "calls",
        f"last success ({zone()})",
        "next call",
        "last error",
    )
    rows = [_runtime_row(name, device.get("runtime"), now) for name, device in devices.items()]
    return table(heads, rows)


def _runtime_row(name: str, runtime: "Runtime | None", now: datetime) -> Sequence[str]:
    if runtime is None:
        return (name, "off", *[""] * 6)
    poll, counters = (
        runtime.get("poll_under_way"),
        cast("Counters | None", runtime.get("counters")),
    )  # an older app has none
    error, next_at = runtime["last_error"], runtime["next_poll_at"]
    if poll is not None:
        calls = count_noun(poll["failed_calls"], "failed call")
        error, next_at = f"{poll['last_error']} ({calls} in the current poll)", poll["next_call_at"]
    elif runtime["status"] == "deferred":
        error = runtime.get("deferred_reason") or error
    return (
        name,
        runtime["status"],
        _circuit(runtime),
        str(runtime["consecutive_failures"]),
        "" if counters is None or not counters.get("calls") else _calls(counters),
        local(runtime["last_success_at"]),
        _next(next_at, now),
        clean(error or ""),
    )


def _calls(counters: "Counters") -> str:
    """How many calls the polls made, and how many of these were repeated."""
    retries = f", {count_noun(counters['retries'], 'retry', 'retries')}" if counters["retries"] else ""
    return f"{counters['calls']} in {count_noun(counters['polls'], 'poll')}{retries}"


def _recent_row(name: str, recent: "Recent") -> Sequence[str]:
    at = recent["at"]
    values = ", ".join(f"{field} {json.dumps(value, ensure_ascii=False)}" for field, value in recent["fields"].items())
    polls = ", ".join(f"{count} {word}" for word, count in Counter(recent["outcomes"]["words"]).items())
    return name, "" if at is None else local(rfc3339(at)), values, polls


def _now(document: "Introspection") -> datetime:
    """The time of the app that answered, if it sent one: its clock may differ from ours."""
    app = document.get("app")
    if app is None or "started_at" not in app:
        return datetime.now(UTC)
    return datetime.fromisoformat(app["started_at"]) + timedelta(seconds=app["uptime"])


def _circuit(runtime: "Runtime") -> str:
    opens = runtime.get("opens", 0)
    return runtime["circuit"] + (f" (opened {count_noun(opens, 'time')})" if opens > 1 else "")


def _next(text: str | None, now: datetime) -> str:
    """The time of the next poll or probe, and how long until then."""
    if text is None:
        return ""
    left = (datetime.fromisoformat(text) - now).total_seconds()
    return f"{local(text)}, in {human(max(1, round(left)))}" if left > 0 else local(text)


COMMAND = Subcommand(
    run,
    "Shows the registrations of an app from its module. With --live, asks the running app over MQTT, "
    "at {prefix}/introspect.",
    (
        "leadsman inspect house:app",
        "leadsman inspect house:app boiler --live",
        "leadsman inspect --prefix house --mqtt mqtt://broker.lan --json",
    ),
    (
        ONLY_DEVICES,
        *OF_LIVE,
        switch("--live", "ask the running app (implied by --prefix, and if MODULE:APP is left out)"),
        argument(
            "--section",
            "app, mqtt, adapters, devices or jobs; of a running app also trace, ledger, recent or fields "
            "(can be repeated)",
            action="append",
            metavar="NAME",
            choices=(*SECTIONS, *ON_REQUEST),
        ),
        JSON,
    ),
)
