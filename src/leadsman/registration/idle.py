"""Why an app has nothing to do."""

from leadsman.registration.declaration import Declaration
from leadsman.registration.registry import Registry
from leadsman.settings.rows import SettingRow


def idle_reason(registry: Registry, rows: tuple[SettingRow, ...], declaration: Declaration) -> str | None:
    """Why the app has nothing to do, and what to write; None when it has something to do. `rows`: its settings."""
    registered = registry.everything
    if any(each.enabled for each in (*registered, *registry.subscriptions.values())):
        return None
    if registered:
        return "all its devices are disabled; set enabled to true for one of them"
    if not registry.without_devices:
        return "it registers nothing; decorate a function with @app.telemetry"
    empty = [row.path for row in rows if row.value in ("[]", "{}")]
    if not empty:
        return f"the settings name no device for {', '.join(registry.without_devices)}"
    from leadsman.settings.faults import Place, to_write

    place, path = Place(declaration.name, "leadsman.toml"), tuple(empty[0].split("."))
    named = f"{empty[0]!r} is" if len(empty) == 1 else f"{', '.join(map(repr, empty))} are"
    return f"it has no devices, because {named} empty; {to_write(place, declaration.model, path)}"
