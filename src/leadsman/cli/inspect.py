"""``leadsman inspect`` and ``leadsman check``: what is registered, how it is doing, and where each setting is from."""

import json
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

from leadsman import __version__
from leadsman.app import App
from leadsman.cli.tables import table
from leadsman.errors import LeadsmanError
from leadsman.introspection.registrations import registered
from leadsman.introspection.service import About, app_section
from leadsman.text import clean, counted, suggestion
from leadsman.timing.durations import human

if TYPE_CHECKING:
    from leadsman.introspection.document import Introspection, Registered
    from leadsman.registration.command import Command
    from leadsman.registration.source import Source
    from leadsman.registration.telemetry import Telemetry


def registrations(app: App) -> "Introspection":
    """The document of an app that does not run: what is registered."""
    about = About(app.name, app.version, __version__, app.topics, str(app.broker), app.client_id)
    jobs = {name for name, each in app.telemetries.items() if each.job}
    found: dict[str, list[Registered]] = {}
    everything: list[Telemetry | Source | Command] = [*app.telemetries.values(), *app.sources.values()]
    everything += app.commands.values()
    for each in everything:
        found.setdefault(each.name, []).append(registered(each))
    return {
        "app": app_section(about),
        "devices": {name: {"registrations": each} for name, each in found.items() if name not in jobs},
        "jobs": {name: {"registrations": each} for name, each in found.items() if name in jobs},
    }


def selected(document: "Introspection", sections: list[str] | None, devices: list[str] | None) -> dict[str, Any]:
    """These sections of a document, and of these devices; all for None.

    Raises:
        LeadsmanError: it has no such section or device.
    """
    found: dict[str, Any] = dict(document)
    for section in sections or ():
        if section not in found:
            raise LeadsmanError(f"the section {section!r} is there while the app runs only; write --live as well")
    known = [name for section in ("devices", "jobs") for name in found[section]]
    for device in devices or ():
        if device not in known:
            raise LeadsmanError(f"there is no device {clean(device)!r}; {suggestion(device, known)}")
    if devices:
        for section in ("devices", "jobs"):
            found[section] = {name: each for name, each in found[section].items() if name in devices}
    return {section: each for section, each in found.items() if not sections or section in sections}


def show(document: Any, *, as_json: bool) -> None:
    """Print a document, for a program or for a person."""
    if as_json:
        print(json.dumps(document, indent=2, ensure_ascii=False))
        return
    live = any("runtime" in each for section in ("devices", "jobs") for each in document.get(section, {}).values())
    if "app" in document:
        _show_app(document["app"])
        _show_state_files(document["app"].get("state_files", {}))
    if "mqtt" in document:
        _show_mqtt(document["mqtt"])
    for adapter in document.get("adapters", ()):
        state = "open" if adapter["open"] else f"not open: {clean(str(adapter['error'] or 'opening'))}"
        said = "".join(f", {name} {clean(str(value))}" for name, value in adapter.get("health", {}).items())
        print(f"adapter {adapter['adapter']}: {state}, reopened {counted(adapter['reopened'], 'time')}{said}")
    for section, title in (("devices", "device"), ("jobs", "side job")):
        if document.get(section):
            print()
            if live:
                print(_runtime_table(title, document[section], _now(document)))
            else:
                print(_registration_table(title, document[section]))


def show_settings(app: App) -> None:
    """Print every value with its origin."""
    rows = [(row.path, row.value, row.origin) for row in app.setup.rows]
    print(table(("setting", "value", "from"), rows) if rows else "no settings")


def _show_app(app: dict[str, Any]) -> None:
    uptime = f", up {human(round(app['uptime']))}" if "uptime" in app else ""
    print(
        f"{app['name']} {app['version']} at {app['prefix']}/{uptime} (leadsman {app['leadsman']}, Python {app['python']})"
    )


def _show_state_files(files: dict[str, str]) -> None:
    for file, error in files.items():
        print(f"state file {clean(file)}: {clean(error)}")


def _show_mqtt(mqtt: dict[str, Any]) -> None:
    outbox = mqtt["outbox"]
    waiting = f"{counted(outbox['messages'], 'message')} waiting" + (
        f", the oldest for {outbox['oldest']:.0f} s" if outbox["oldest"] else ""
    )
    print(
        f"broker {mqtt['broker']}: MQTT {mqtt['protocol']}, {counted(mqtt['connects'], 'connection')}, {outbox['delivered']} delivered, {waiting}"
    )
    if outbox["dropped"]:
        print(f"dropped: {counted(outbox['dropped'], 'message')}")
    if mqtt["last_error"]:
        print(f"last error: {clean(mqtt['last_error'])}")


def _registration_table(title: str, devices: dict[str, Any]) -> str:
    """What is registered; columns that are empty in every row are left out."""
    registered = [(name, each) for name, device in devices.items() for each in device["registrations"]]
    columns = {
        title: [name for name, _ in registered],
        **{head: [cell(each) for _, each in registered] for head, cell in _COLUMNS.items()},
    }
    shown = {head: cells for head, cells in columns.items() if any(cells)}
    return table(tuple(shown), list(zip(*shown.values(), strict=True)))


def _when(each: dict[str, Any]) -> str:
    return str(each.get("schedule") or (f"every {human(each['interval'])}" if each.get("interval") else ""))


def _retries(each: dict[str, Any]) -> str:
    if each["kind"] == "source":
        return "restarted"
    if (policy := each.get("policy_name") or each.get("policy")) is not None:
        return clean(policy) if len(policy) <= WIDEST else f"{clean(policy)[: WIDEST - 1]}…"
    if "retry" not in each:
        return ""
    bounds = "".join(f", {word} {human(each[word])}" for word in ("budget", "within") if word in each)
    return f"{each['retry']} on {', '.join(each['retry_on'])}{bounds}" if each["retry"] else "none"


def _breaker(each: dict[str, Any]) -> str:
    rule = each.get("circuit_breaker")
    if rule is None:
        return ""
    shared = f", shared {rule['shared']}" if rule["shared"] else ""
    return f"after {rule['threshold']}{shared}" + (f", ignores {', '.join(rule['ignore'])}" if rule["ignore"] else "")


def _length(word: str) -> Callable[[dict[str, Any]], str]:
    return lambda each: human(each[word]) if each.get(word) else ""


WIDEST = 60
"""Characters of a policy in a table; ``--json`` has the whole."""
_COLUMNS: Mapping[str, Callable[[dict[str, Any]], str]] = {
    "kind": lambda each: each["kind"] + ("" if each["enabled"] else " (off)"),
    "when": _when,
    "retries": _retries,
    "breaker": _breaker,
    "timeout": _length("timeout"),
    "publish": lambda each: each.get("publish") or "",
    "group": lambda each: each.get("group") or "",
    "stale after": _length("stale_after"),
    "needs": lambda each: ", ".join(each["needs"]),
}


def _runtime_table(title: str, devices: dict[str, Any], now: datetime) -> str:
    rows: list[Sequence[str]] = []
    for name, device in devices.items():
        runtime = device.get("runtime")
        if runtime is None:
            rows.append((name, "off", *[""] * 6))
            continue
        trying, counters = runtime.get("poll_under_way"), runtime.get("counters")  # an older app may not say
        error, next_at = runtime["last_error"], runtime["next_due_at"]
        if trying is not None:
            calls = counted(trying["failed_calls"], "failed call")
            error, next_at = f"{trying['last_error']} ({calls} in the poll under way)", trying["next_call_at"]
        elif runtime.get("deferred_until") is not None:
            error = runtime.get("deferred_reason") or error
        rows.append(
            (
                name,
                runtime["status"],
                _circuit(runtime),
                str(runtime["consecutive_failures"]),
                "" if counters is None else f"{counters['retried_polls']} of {counters['polls']}",
                _time(runtime["last_success_at"]),
                _next(next_at, now),
                clean(error or ""),
            )
        )
    heads = (title, "status", "circuit", "failures", "polls retried", "last success", "next call", "last error")
    return table(heads, rows)


def _now(document: dict[str, Any]) -> datetime:
    """The time of the app that answered, where it says so: its clock need not be ours."""
    app = document.get("app", {})
    if "started_at" not in app:
        return datetime.now(UTC)
    return datetime.fromisoformat(app["started_at"]) + timedelta(seconds=app["uptime"])


def _circuit(runtime: dict[str, Any]) -> str:
    opens = runtime.get("opens", 0)
    return str(runtime["circuit"]) + (f" (opened {counted(opens, 'time')})" if opens > 1 else "")


def _next(text: str | None, now: datetime) -> str:
    """When the next poll or probe is, and in how long."""
    if text is None:
        return ""
    left = (datetime.fromisoformat(text) - now).total_seconds()
    return f"{_time(text)}, in {human(max(1, round(left)))}" if left > 0 else _time(text)


def _time(text: str | None) -> str:
    return "" if text is None else text[:19].replace("T", " ") + "Z"
