"""Write a folder for each app that Home Assistant installs as an add-on, and builds on its machine.

Usage: ``python scripts/addons.py [FOLDER]``; FOLDER is `build/addons` unless it is named, and is emptied first. The
wheels of `make dist` have to be in `build/dist`. What an add-on is called, what it may be told and which devices it
needs comes from the app: its `pyproject.toml`, its settings, and the extras of leadsman that it asks for.
"""

import ast
import importlib
import inspect
import re
import shutil
import sys
import tomllib
from collections import ChainMap
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml
from pydantic import BaseModel

ROOT = Path(__file__).parent.parent
APPS = sorted(each.parent for each in ROOT.glob("apps/*/pyproject.toml"))
WHEELS = ROOT / "build" / "dist"
RECIPE = ROOT / "src" / "leadsman" / "tools" / "cli" / "templates" / "Dockerfile"
PYDANTIC = Path(inspect.getfile(BaseModel))
START = Path(__file__).with_name("addon_start.py")

HARDWARE: Mapping[str, dict[str, Any]] = {
    "serial": {"uart": True},
    "i2c": {"devices": ["/dev/i2c-0", "/dev/i2c-1"]},
    "ble": {"host_dbus": True},
    "ble-decoders": {"host_dbus": True},
}
"""What an add-on may use, by the extra of leadsman that an app asks for."""

ADDED_TO_RECIPE = """
# As an add-on of Home Assistant: options.json belongs to root, and all that has to survive lies in /data.
COPY start.py .
USER 0
ENV STATE_DIRECTORY=/data/state CONFIGURATION_DIRECTORY=/config DISCOVERY__CONVENTION=homeassistant
CMD ["python", "start.py"]
"""

DOCS = """# {name}

{description}. Its devices appear in Home Assistant by themselves.

The broker is the one that Home Assistant has, such as the add-on *Mosquitto broker*. The options `mqtt` name another
one: `url` is like `mqtt://192.0.2.7:1883`.

An option that is empty has its default. In an option with several entries, `name` is the name of the device in topics
and in Home Assistant. A time is like `30s`, `5m` or `2h`.

What is no option, write into `leadsman.toml` in the folder of this add-on below `addon_configs`. An option wins over
that file.

Switch on *Watchdog*: the app ends by itself when it hangs, or when no device gives a reading for an hour, and is then
started again.
"""

BROKER = {"url": "str?", "username": "str?", "password": "password?"}
"""The options for a broker that is not that of Home Assistant."""


def element(schema: Mapping[str, Any], model: Mapping[str, Any], *, optional: bool) -> Any:
    """The type of an option, as the Supervisor writes it, of a part of the JSON schema of the settings."""
    if "$ref" in schema:
        return element(model["$defs"][schema["$ref"].rpartition("/")[2]], model, optional=optional)
    if "anyOf" in schema:
        (one,) = (each for each in schema["anyOf"] if each != {"type": "null"})
        return element(one, model, optional=True)
    end = "?" if optional else ""
    match schema:
        case {"enum": choices}:
            return f"list({'|'.join(map(str, choices))}){end}"
        case {"type": "object", "additionalProperties": dict(section)}:
            return [{"name": "str", **element(section, model, optional=False)}]
        case {"type": "object", "properties": _}:
            return elements(schema, model)
        case {"type": "boolean"}:
            return f"bool{end}"
        case {"type": "integer" | "number"}:
            return f"{'int' if schema['type'] == 'integer' else 'float'}{limits(schema)}{end}"
        case {"type": "string"}:
            return f"{'password' if schema.get('format') == 'password' else 'str'}{end}"
    raise ValueError(f"no option has this type: {schema}")


def limits(schema: Mapping[str, Any]) -> str:
    """The lowest and the highest number. The Supervisor knows none below 0, and none that is itself excluded; what it
    lets through, the app refuses."""
    lowest, highest = (schema.get(f"exclusive{end}", schema.get(end.lower())) for end in ("Minimum", "Maximum"))
    given = ["" if each is None else str(each) for each in (lowest, highest)]
    return f"({','.join(given)})" if any(given) and not any(each.startswith("-") for each in given) else ""


def elements(schema: Mapping[str, Any], model: Mapping[str, Any]) -> dict[str, Any]:
    """The type of each option of a section."""
    required = schema.get("required", ())
    return {name: element(each, model, optional=name not in required) for name, each in schema["properties"].items()}


def docstrings(path: Path) -> dict[str, dict[str, str]]:
    """What stands below the fields of the models in a file, by model and field."""
    found: dict[str, dict[str, str]] = {}
    for each in ast.parse(path.read_text("utf-8")).body:
        if isinstance(each, ast.ClassDef):
            pairs = zip(each.body, each.body[1:], strict=False)
            found[each.name] = {
                field.target.id: " ".join(ast.literal_eval(text.value).split())
                for field, text in pairs
                if isinstance(field, ast.AnnAssign)
                and isinstance(field.target, ast.Name)
                and isinstance(text, ast.Expr)
            }
    return found


def texts(
    schema: Mapping[str, Any], model: Mapping[str, Any], documented: Mapping[str, Mapping[str, str]]
) -> dict[str, dict[str, Any]]:
    """What the page of the add-on shows beside each option of a section: its name, and what it is, with its default."""
    found: dict[str, dict[str, Any]] = {}
    about = documented.get(schema["title"], {})
    for name, each in schema["properties"].items():
        found[name] = {"name": name.replace("_", " ").capitalize()}
        default = "" if isinstance(each.get("default"), dict | None) else f"Default: {shown(each['default'])}."
        if text := f"{about.get(name, '')} {default}".strip():
            found[name]["description"] = text
        section = each if "$ref" in each else each.get("additionalProperties", {})
        if "$ref" in section:
            keyed = {"name": {"name": "Name"}} if section is not each else {}
            inner = model["$defs"][section["$ref"].rpartition("/")[2]]
            found[name]["fields"] = keyed | texts(inner, model, documented)
    return found


def shown(default: object) -> str:
    """A default as the page shows values."""
    return {True: "on", False: "off"}[default] if isinstance(default, bool) else str(default) or "empty"


def configuration(app: Path) -> tuple[dict[str, Any], dict[str, Any]]:
    """`config.yaml` and `translations/en.yaml` of an app."""
    project = tomllib.loads((app / "pyproject.toml").read_text("utf-8"))["project"]
    (extras,) = (re.findall(r"[\w-]+", each.partition("]")[0])[1:] for each in project["dependencies"])
    module = importlib.import_module(f"{app.name}.settings")
    model = module.Settings.model_json_schema()
    schema = {**elements(model, model), "mqtt": BROKER}
    config = {
        "name": project["name"],
        "version": project["version"],
        "slug": project["name"],
        "description": project["description"],
        "arch": ["aarch64", "amd64"],
        "stage": "experimental",
        "services": ["mqtt:want"],
        "map": ["addon_config:ro"],
        "backup": "cold",
        **{key: value for extra in extras for key, value in HARDWARE.get(extra, {}).items()},
        # The Supervisor asks for each list and section, though all in it may be left out.
        "options": {key: type(each)() for key, each in schema.items() if not isinstance(each, str)},
        "schema": schema,
    }
    models = [each for each in vars(module).values() if isinstance(each, type) and issubclass(each, BaseModel)]
    documented = ChainMap(*map(docstrings, {Path(inspect.getfile(each)) for each in models} - {PYDANTIC}))
    fields = {key: {"name": key.capitalize(), "description": "For another broker."} for key in BROKER}
    own = {"mqtt": {"name": "Broker", "description": "Empty: that of Home Assistant.", "fields": fields}}
    return config, {"configuration": texts(model, model, documented) | own}


def write(app: Path, folder: Path) -> None:
    """Write the folder of one add-on."""
    config, english = configuration(app)
    (folder / "translations").mkdir(parents=True)
    for path, content in (("config.yaml", config), ("translations/en.yaml", english)):
        (folder / path).write_text(yaml.safe_dump(content, sort_keys=False, allow_unicode=True, width=120), "utf-8")
    recipe = RECIPE.read_text("utf-8").replace("\nARG APP\n", f"\nARG APP={app.name}\n")
    (folder / "Dockerfile").write_text(recipe + ADDED_TO_RECIPE, "utf-8")
    (folder / "DOCS.md").write_text(DOCS.format_map(config), "utf-8")
    shutil.copy(START, folder / "start.py")
    (folder / "wheels").mkdir()
    for name in ("leadsman", app.name):
        (wheel,) = WHEELS.glob(f"{name}-*.whl")
        shutil.copy(wheel, folder / "wheels")


def main(folder: Path) -> None:
    """Write all of them, as a repository of add-ons."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    (folder / "repository.yaml").write_text("name: Apps of leadsman\n", "utf-8")
    for app in APPS:
        write(app, folder / app.name)


if __name__ == "__main__":
    main(Path(sys.argv[1]) if sys.argv[1:] else ROOT / "build" / "addons")
