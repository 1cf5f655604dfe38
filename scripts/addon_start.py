"""Start an app as an add-on of Home Assistant: its options are the settings, and the Supervisor names the broker.

`scripts/addons.py` puts this file into the folder of each add-on, as `start.py`.
"""

import json
import os
import sys
import time
from collections.abc import Iterator, Mapping
from http.client import HTTPException
from pathlib import Path
from typing import Any
from urllib.request import Request, urlopen

from leadsman.core.settings.sources import variable

OPTIONS = Path("/data/options.json")
SERVICE = "http://supervisor/services/mqtt"
TRIES = 30
"""How often the Supervisor is asked, with `PAUSE` between: a broker that starts with this machine needs its time."""
PAUSE = 5.0
"""Seconds."""


def keyed(option: str, value: Any) -> Any:
    """A list of sections that have a name each, as leadsman has them: by their names. Raises `SystemExit`, if two have
    the same one."""
    if not isinstance(value, list):
        return value
    names = [each["name"] for each in value]
    if twice := sorted({name for name in names if names.count(name) > 1}):
        raise SystemExit(f"{option}: several entries are called {', '.join(twice)}; give each a name of its own")
    return {each["name"]: {key: one for key, one in each.items() if key != "name"} for each in value}


def variables(app: str, options: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """The variables that set what the options say. What is empty is left out: the default or a file says it."""
    for key, value in options.items():
        if key == "mqtt":
            yield from ((variable(None, (key, each)), text) for each, text in value.items() if text)
        elif value not in (None, "", [], {}):
            yield variable(app, (key,)), value if isinstance(value, str) else json.dumps(keyed(key, value))


def broker(token: str) -> dict[str, str]:
    """The variables with the broker of Home Assistant. Raises `OSError`, if there is none; another error, if the answer
    is none."""
    with urlopen(Request(SERVICE, headers={"Authorization": f"Bearer {token}"}), timeout=10) as answer:
        service = json.load(answer)["data"]
    url = f"{'mqtts' if service.get('ssl') else 'mqtt'}://{service['host']}:{service['port']}"
    given = {"url": url, "username": service.get("username"), "password": service.get("password")}
    return {variable(None, ("mqtt", key)): text for key, text in given.items() if text}


def found_broker(token: str) -> dict[str, str]:
    """As `broker`, but waits for one. Raises `SystemExit`, if none comes."""
    for _ in range(TRIES):
        try:
            return broker(token)
        except (OSError, HTTPException, ValueError, LookupError, TypeError, AttributeError) as error:
            sys.stderr.write(f"Home Assistant names no broker yet: {error!r}\n")
            time.sleep(PAUSE)
    raise SystemExit(
        "there is no broker; install the add-on Mosquitto broker, or write the url of another one into mqtt"
    )


def main() -> None:
    """Become the app."""
    app = os.environ["APP"]
    settings = dict(variables(app, json.loads(OPTIONS.read_text("utf-8"))))
    if variable(None, ("mqtt", "url")) not in settings:
        settings = found_broker(os.environ["SUPERVISOR_TOKEN"]) | settings
    os.environ.pop("SUPERVISOR_TOKEN", None)
    os.execvpe("leadsman", ["leadsman", "run", f"{app}:app"], os.environ | settings)


if __name__ == "__main__":
    main()
