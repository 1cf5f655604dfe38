"""``leadsman inspect``: the registrations of an app, or the state of a running one."""

import argparse
import time
from collections import Counter
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, cast

from leadsman._version import UNVERSIONED
from leadsman.core.app import App
from leadsman.core.document import EpochTime, Seconds
from leadsman.core.extension import Extension
from leadsman.core.introspection.declared import declared_sections, documents_of
from leadsman.core.introspection.registrations import describe_registration
from leadsman.core.introspection.registry import app_section, declared
from leadsman.core.introspection.requests import FIELDS, SECTIONS, understood
from leadsman.core.introspection.situation import value
from leadsman.core.loop.durations import human
from leadsman.core.loop.schedule import zone_of
from leadsman.core.registration.injection import name_of
from leadsman.core.registration.telemetry import THROTTLE
from leadsman.core.text import clean, count_noun
from leadsman.core.text.suggestion import suggestion
from leadsman.errors import LeadsmanError
from leadsman.tools.cli.arguments import JSON, OF_LIVE, ONLY_DEVICES, Subcommand, UsageError, argument, switch
from leadsman.tools.cli.commands import printers
from leadsman.tools.cli.documents import Cells, cells_of, print_document, print_table, text_of
from leadsman.tools.cli.remote import any_version, ask_about_devices, split_names
from leadsman.tools.cli.tables import json_text, print_text
from leadsman.tools.cli.target import load_app
from leadsman.tools.cli.times import local, zone

if TYPE_CHECKING:
    from leadsman.core.introspection.document import AdapterSection, DeviceSection, Introspection, Registered, Runtime


def run(options: argparse.Namespace) -> None:
    """Show the registrations of an app, or the state of a running one."""
    if (options.named or options.target is not None) and not (options.live or options.prefix):
        split_names(options, app_first=True)
        app = load_app(options)
        known = (*SECTIONS, *declared_sections(app.setup.extensions), FIELDS)
        for section in options.section or ():
            if section not in known:
                raise UsageError(f"--section: invalid choice: {clean(section)!r}; {suggestion(section, known)}")
        show(
            select(registrations(app), options.section, options.device),
            as_json=options.json,
            whole=bool(options.device),
        )
        if not (options.json or options.section or options.device):
            show_plans(app)
        return

    answer = ask_about_devices(options, {"sections": options.section} if options.section else {})
    own = load_app(options).setup.extensions if options.target is not None else ()
    with any_version():
        show(answer, as_json=options.json, whole=bool(options.device), own=own)


def registrations(app: App) -> "Introspection":
    """The document of an app that does not run: its registrations."""
    about = app.setup.identity
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
    wanted = understood({"devices": devices} if devices else "", known).names
    found = document.copy()
    found["devices"] = {name: each for name, each in document["devices"].items() if name in wanted}
    found["jobs"] = {name: each for name, each in document["jobs"].items() if name in wanted}
    return cast("Introspection", {name: each for name, each in found.items() if not sections or name in sections})


def show(document: "Introspection", *, as_json: bool, whole: bool = False, own: tuple[Extension, ...] = ()) -> None:
    """Print a document, for a program or for a person. `whole`: with each field of its devices. `own`: the extensions
    that the app was given."""
    if as_json:
        print(json_text(document, indent=2))
        return
    from leadsman.core.introspection.document import (
        AdapterSection,
        FieldTerms,
        MqttSection,
        Registered,
    )

    types, further = documents_of(own), cast("Mapping[str, Mapping[str, object]]", document)
    if "app" in document:
        about = document["app"]
        print_document("app", {**about, "version": None} if about.get("version") == UNVERSIONED else about, types.app)
    if "mqtt" in document:
        if "nodes" in document.get("app", {}):
            print()  # the fields of the connection are no rows of the table of nodes
        print_document("mqtt", document["mqtt"], MqttSection)
        if document["mqtt"].get("limited_by"):
            allowed = (
                f"the broker allows {count_noun(document['mqtt']['window'], 'message')} in flight (Receive Maximum)"
            )
            print_text(f"readings come faster than the broker accepts them, and arrive late: {allowed}")
    adapters = [(each,) for each in document.get("adapters", ())]
    print_table((), adapters, {**cells_of(AdapterSection), "health": _health})
    devices = [("device", document.get("devices", {})), ("side job", document.get("jobs", {}))]
    is_live = any("runtime" in each for _, found in devices for each in found.values())
    for head, found in devices:
        if is_live:
            states = [(name, each.get("runtime", OFF)) for name, each in found.items()]
            print_table((head,), states, runtime_cells(_now(document)))
        else:
            registered = [(name, each) for name, device in found.items() for each in device["registrations"]]
            print_table((head,), registered, REGISTRATION)
        for name, device in found.items() if whole else ():
            print()
            for number, each in enumerate(device["registrations"]):
                print_document("" if number else clean(name), each, Registered)
            if "runtime" in device:
                print_document("", device["runtime"], types.runtime)
    terms = [
        (device, name, each) for device, fields in document.get("fields", {}).items() for name, each in fields.items()
    ]
    print_table(("device", "field"), terms, cells_of(FieldTerms))
    print_table(("device",), [*further.get("recent", {}).items()], recent_cells())
    for name, module in printers(further).items():
        print()
        module.print_section(further[name])
    for extension in own:
        print_document("", further, extension.documents.sections)
    known = *SECTIONS, FIELDS, *declared_sections(own)
    if left := {name: each for name, each in further.items() if name not in known}:
        print(json_text(left, indent=2))  # of extensions that are not known here


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


MAX_POLICY_CHARS = 60
"""Characters of a policy in a table; ``--json`` prints all of it."""
REGISTRATION: Cells = {
    "kind": lambda each: each["kind"] + ("" if each["enabled"] else " (off)"),
    "when": _schedule,
    "retries": _retries,
    "breaker": _breaker,
    "timeout": lambda each: text_of(each.get("timeout"), Seconds),
    "publish": lambda each: each.get("publish") or "",
    "keep": _kept,
    "group": lambda each: each.get("group") or "",
    "stale after": lambda each: text_of(each.get("stale_after"), Seconds),
    "throttle": _apart,
    "request": lambda each: each.get("request", ""),
    "needs": lambda each: ", ".join(each["needs"]),
}


def runtime_cells(now: datetime) -> Cells:
    """The columns of a table of devices that run. `now` is the time of their app."""
    return {
        "status": lambda each: each["status"],
        "circuit": _circuit,
        "failures": lambda each: text_of(each.get("consecutive_failures")),
        "calls": _calls,
        f"last success ({zone()})": lambda each: local(each.get("last_success_at")),
        "next call": lambda each: _next(each, now),
        "last error": _error,
    }


def _circuit(runtime: "Runtime") -> str:
    opens = runtime.get("opens", 0)
    return text_of(runtime.get("circuit")) + (f" (opened {count_noun(opens, 'time')})" if opens > 1 else "")


def _calls(runtime: "Runtime") -> str:
    """How many calls the polls made, and how many of these were repeated."""
    counters = runtime.get("counters", {})
    if not counters.get("calls"):
        return ""
    retries = f", {count_noun(counters['retries'], 'retry', 'retries')}" if counters["retries"] else ""
    return f"{counters['calls']} in {count_noun(counters['polls'], 'poll')}{retries}"


def _next(runtime: "Runtime", now: datetime) -> str:
    """The time of the next call or probe, and how long until then."""
    poll = runtime.get("poll_under_way")
    text = runtime.get("next_poll_at") if poll is None else poll["next_call_at"]
    if text is None:
        return ""
    left = (datetime.fromisoformat(text) - now).total_seconds()
    return f"{local(text)}, in {human(max(1, round(left)))}" if left > 0 else local(text)


def _error(runtime: "Runtime") -> str:
    if (poll := runtime.get("poll_under_way")) is not None:
        return f"{poll['last_error']} ({count_noun(poll['failed_calls'], 'failed call')} in the current poll)"
    reason = runtime.get("deferred_reason") if runtime["status"] == "deferred" else None
    return text_of(reason or runtime.get("last_error"))


def recent_cells() -> Cells:
    """The columns of a table of last values. The earlier ones are left out."""
    return {
        f"read at ({zone()})": lambda each: text_of(each["at"], EpochTime),
        "last values": lambda each: ", ".join(f"{name} {value(found)}" for name, found in each["fields"].items()),
        "last polls": lambda each: ", ".join(
            f"{count} {word}" for word, count in Counter(each["outcomes"]["words"]).items()
        ),
    }


def _now(document: "Introspection") -> datetime:
    """The time of the app that answered, if it sent one: its clock may differ from ours."""
    app = document.get("app")
    if app is None or "started_at" not in app:
        return datetime.now(UTC)
    return datetime.fromisoformat(app["started_at"]) + timedelta(seconds=app["uptime"])


def _health(adapter: "AdapterSection") -> str:
    """What an adapter reports of itself."""
    health = {name.replace("_", " "): each for name, each in adapter.get("health", {}).items() if name != "opened"}
    heard = ""
    if "silent for" in health:
        silence = text_of(health.pop("silent for"), Seconds)
        heard = f"received nothing for {silence}" if silence else "received nothing yet"
    return ", ".join(filter(None, (text_of(health), heard)))


OFF = {"status": "off"}
"""The state of a device none of whose registrations is enabled."""
COMMAND = Subcommand(
    run,
    "Shows the registrations of an app from its module. With --live, asks the running app over MQTT, "
    "at {prefix}/introspect. Of a device that is named it shows each field.",
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
            f"app, mqtt, adapters, devices or jobs; of a running app also {', '.join(declared_sections())}, {FIELDS} "
            "or one of its extensions (can be repeated)",
            action="append",
            metavar="NAME",
        ),
        JSON,
    ),
)
