"""``leadsman inspect`` and ``leadsman check``: what is registered, how it is doing, and where each setting is from."""

import json
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from leadsman import __version__
from leadsman.app import App
from leadsman.cli.tables import table
from leadsman.durations import human
from leadsman.introspection.registered import registered
from leadsman.introspection.service import About, app_section
from leadsman.wording import clean

if TYPE_CHECKING:
    from leadsman.command import Command
    from leadsman.introspection.document import Introspection, Registered
    from leadsman.source import Source
    from leadsman.telemetry import Telemetry


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


def show(document: Any, *, as_json: bool) -> None:
    """Print a document, for a program or for a person."""
    if as_json:
        print(json.dumps(document, indent=2, ensure_ascii=False))
        return
    live = any("runtime" in each for section in ("devices", "jobs") for each in document.get(section, {}).values())
    if "app" in document:
        _show_app(document["app"])
    if "mqtt" in document:
        _show_mqtt(document["mqtt"])
    for adapter in document.get("adapters", ()):
        state = "open" if adapter["open"] else f"not open: {clean(str(adapter['error'] or 'opening'))}"
        said = "".join(f", {name} {clean(str(value))}" for name, value in adapter.get("health", {}).items())
        print(f"adapter {adapter['adapter']}: {state}, reopened {adapter['reopened']} times{said}")
    for section, title in (("devices", "device"), ("jobs", "side job")):
        if document.get(section):
            print()
            print(_runtime_table(title, document[section]) if live else _registration_table(title, document[section]))


def show_settings(app: App) -> None:
    """Print every value with its origin."""
    rows = [(row.path, row.value, row.origin) for row in app.rows]
    print(table(("setting", "value", "from"), rows) if rows else "no settings")


def _show_app(app: dict[str, Any]) -> None:
    uptime = f", up {human(round(app['uptime']))}" if "uptime" in app else ""
    print(
        f"{app['name']} {app['version']} at {app['prefix']}/{uptime} (leadsman {app['leadsman']}, Python {app['python']})"
    )


def _show_mqtt(mqtt: dict[str, Any]) -> None:
    outbox = mqtt["outbox"]
    waiting = f"{outbox['messages']} messages wait" + (
        f", the oldest for {outbox['oldest']:.0f} s" if outbox["oldest"] else ""
    )
    print(
        f"broker {mqtt['broker']}: MQTT {mqtt['protocol']}, {mqtt['connects']} connections, {outbox['delivered']} delivered, {waiting}"
    )
    if outbox["dropped"]:
        print(f"dropped: {outbox['dropped']} messages")
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


def _runtime_table(title: str, devices: dict[str, Any]) -> str:
    rows: list[Sequence[str]] = []
    for name, device in devices.items():
        runtime = device.get("runtime")
        if runtime is None:
            rows.append((name, "off", "", "", "", "", ""))
            continue
        rows.append(
            (
                name,
                runtime["status"],
                runtime["circuit"],
                str(runtime["consecutive_failures"]),
                _time(runtime["last_success_at"]),
                _time(runtime["next_due_at"]),
                clean(runtime["last_error"] or ""),
            )
        )
    return table((title, "status", "circuit", "failures", "last success", "next poll", "last error"), rows)


def _time(text: str | None) -> str:
    return "" if text is None else text[:19].replace("T", " ") + "Z"
