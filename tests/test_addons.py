"""The add-ons of Home Assistant that `make addons` writes, and how one starts.

The rules for a description are those that the Supervisor checks as it reads one, and those by which it accepts options:
`supervisor/addons/validate.py` and `options.py` in its repository. It is no package.
"""

import importlib.util
import json
import re
import threading
import tomllib
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import get_args
from urllib.error import URLError

import pytest
import yaml
from pydantic import BaseModel, SecretStr

from leadsman.core.settings.sources import Where

ROOT = Path(__file__).parents[1]
APPS = sorted(each.parent.name for each in ROOT.glob("apps/*/pyproject.toml"))
ELEMENT = re.compile(
    r"(?:bool|email|url|port|device(?:\(subsystem=[a-z]+\))?|match\(.*\)|list\((?P<list>.+)\)"
    r"|(?:str|password|int)(?:\(\d*,\d*\))?|float(?:\([\d.]*,[\d.]*\))?)\??"
)
KEYS = {
    "name": str,
    "version": str,
    "slug": str,
    "description": str,
    "arch": list,
    "stage": str,
    "services": list,
    "map": list,
    "backup": str,
    "uart": bool,
    "devices": list,
    "host_dbus": bool,
    "options": dict,
    "schema": dict,
}
"""Those that our add-ons may have, each with its type."""


def script(name):
    spec = importlib.util.spec_from_file_location(name, ROOT / "scripts" / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


START = script("addon_start")


@pytest.fixture(scope="module")
def addons(tmp_path_factory):
    """The folder with all of them, with empty files for wheels."""
    module, folder = script("addons"), tmp_path_factory.mktemp("addons")
    module.WHEELS = tmp_path_factory.mktemp("dist")
    for name in ("leadsman", *APPS):
        (module.WHEELS / f"{name}-0.1.0-py3-none-any.whl").touch()
    module.main(folder)
    return folder


def description(addons, app):
    return yaml.safe_load((addons / app / "config.yaml").read_text())


def complaints(schema, options, where=""):
    """Why the Supervisor refuses these options."""
    if isinstance(schema, dict):
        yield from (f"{where}{key} is no option" for key in options.keys() - schema.keys())
        for key, each in schema.items():
            if key in options:
                yield from complaints(each, options[key], f"{where}{key}.")
            elif not (isinstance(each, str) and each.endswith("?")):
                yield f"{where}{key} is missing"
    elif isinstance(schema, list):
        for each in options:
            yield from complaints(schema[0], each, where)
    elif choices := ELEMENT.fullmatch(schema)["list"]:
        yield from () if str(options) in choices.split("|") else [f"{where} {options} is none of {choices}"]
    else:
        kind = re.match("[a-z]+", schema)[0]
        wanted = {"bool": bool, "int": int, "float": (int, float)}.get(kind, str)
        yield from () if isinstance(options, wanted) else [f"{where} {options!r} is no {kind}"]


def leaves(schema):
    """The types of all options."""
    if isinstance(schema, str):
        yield schema
    for each in schema.values() if isinstance(schema, dict) else schema if isinstance(schema, list) else ():
        yield from leaves(each)


def depth(schema):
    """How many sections lie in each other."""
    inner = schema.values() if isinstance(schema, dict) else schema if isinstance(schema, list) else None
    return 0 if inner is None else isinstance(schema, dict) + max(map(depth, inner))


def as_options(settings):
    """A section of leadsman.toml as a page of Home Assistant has it: sections of sections are lists."""
    return {
        key: [{"name": name, **each} for name, each in value.items()]
        if isinstance(value, dict) and all(isinstance(each, dict) for each in value.values())
        else value
        for key, value in settings.items()
    }


def parts(annotation):
    """A type, and all that it is made of."""
    yield annotation if isinstance(annotation, type) else None
    for each in get_args(annotation):
        yield from parts(each)


def page(app):
    """The settings on the page of an app."""
    return tomllib.loads(re.search(r"```toml\n(.*?)```", (ROOT / f"apps/{app}/README.md").read_text(), re.DOTALL)[1])


def loaded(app, where):
    """The settings that an app has there."""
    app = importlib.import_module(f"{app}.app").app
    with app.unloaded():
        app.load(where)
        return app.settings


@pytest.mark.parametrize("app", APPS)
def test_the_supervisor_accepts_each_description(addons, app):
    config = description(addons, app)
    project = tomllib.loads((ROOT / f"apps/{app}/pyproject.toml").read_text())["project"]

    assert {key: type(value) for key, value in config.items()}.items() <= KEYS.items()
    assert [config[key] for key in ("name", "slug", "version", "description")] == [
        *(project["name"], project["name"], project["version"], project["description"])
    ]
    assert re.fullmatch(r"[-_.A-Za-z0-9]+", config["slug"])
    assert set(config["arch"]) <= {"aarch64", "amd64", "armhf", "armv7", "i386"}
    assert config["stage"] in ("stable", "experimental", "deprecated")
    assert config["backup"] in ("hot", "cold")
    assert all(re.fullmatch(r"(mqtt|mysql):(provide|want|need)", each) for each in config["services"])
    assert all(re.fullmatch(r"(data|ssl|share|media|addon_config)(:(rw|ro))?", each) for each in config["map"])
    assert [each for each in leaves(config["schema"]) if not ELEMENT.fullmatch(each)] == []
    assert depth(config["schema"]) <= 2
    required = {key for key, each in config["schema"].items() if isinstance(each, str) and each[-1] != "?"}
    assert set(complaints(config["schema"], config["options"])) == {f"{key} is missing" for key in required}


@pytest.mark.parametrize("app", APPS)
def test_each_setting_is_an_option_and_each_secret_is_hidden(addons, app):
    schema = description(addons, app)["schema"]
    assert set(schema.pop("mqtt")) == {"url", "username", "password"}

    def compare(model, section):
        assert section.keys() - {"name"} == model.model_fields.keys()
        for name, field in model.model_fields.items():
            option = section[name]
            kinds = set(parts(field.annotation))
            if models := [each for each in kinds if isinstance(each, type) and issubclass(each, BaseModel)]:
                compare(models[0], option[0] if isinstance(option, list) else option)
            else:
                assert option.endswith("?") == (not field.is_required()), name
                assert option.startswith("password") == (SecretStr in kinds), name

    compare(importlib.import_module(f"{app}.settings").Settings, schema)


@pytest.mark.parametrize("app", APPS)
def test_what_the_page_of_an_app_sets_is_set_by_options_too(addons, app, tmp_path):
    given = page(app)
    schema = description(addons, app)["schema"]
    options = description(addons, app)["options"] | as_options(given)
    (tmp_path / "leadsman.toml").write_text(
        re.search(r"```toml\n(.*?)```", (ROOT / f"apps/{app}/README.md").read_text(), re.DOTALL)[1]
    )

    assert list(complaints(schema, options)) == []
    variables = dict(START.variables(app, options))

    assert variables["MQTT__URL"] == given["mqtt"]["url"]
    by_options = loaded(app, Where(variables, tmp_path / "nothing", secrets=tmp_path / "nothing"))
    assert by_options == loaded(app, Where({}, tmp_path, secrets=tmp_path / "nothing"))


@pytest.mark.parametrize("app", APPS)
def test_each_choice_is_accepted_by_the_app(addons, app, tmp_path):
    given = as_options(page(app))
    for key, kind in description(addons, app)["schema"].items():
        if isinstance(kind, str) and (choices := ELEMENT.fullmatch(kind)["list"]):
            for each in choices.split("|"):
                variables = dict(START.variables(app, {**given, key: each}))
                settings = loaded(app, Where(variables, tmp_path, secrets=tmp_path))
                assert str(getattr(settings, key)) == each


@pytest.mark.parametrize("app", APPS)
def test_each_option_is_explained_on_its_page(addons, app):
    english = yaml.safe_load((addons / app / "translations" / "en.yaml").read_text())["configuration"]

    def compare(section, named):
        assert section.keys() == named.keys()
        for key, each in section.items():
            assert named[key].keys() <= {"name", "description", "fields"}
            assert key == "name" or not named[key]["description"].startswith("Default: "), key
            if not isinstance(each, str):
                compare(each[0] if isinstance(each, list) else each, named[key]["fields"])

    compare(description(addons, app)["schema"], english)


def test_the_texts_of_the_settings_and_their_defaults_stand_beside_the_options(addons):
    english = yaml.safe_load((addons / "vito2mqtt" / "translations" / "en.yaml").read_text())["configuration"]

    assert english["parity"]["description"].endswith("behind gateways that set it themselves. Default: E.")
    assert english["legionella"]["fields"]["minutes"]["description"] == "How long it is held. Default: 40."


@pytest.mark.parametrize("app", APPS)
def test_an_addon_has_all_that_it_is_built_from(addons, app):
    folder = addons / app
    lines = (folder / "Dockerfile").read_text().splitlines()
    recipe = (ROOT / "src/leadsman/tools/cli/templates/Dockerfile").read_text().splitlines()

    assert {line for line in recipe if line not in lines} == {"ARG APP"}
    assert f"ARG APP={app}" in lines
    for source in (line.split()[1] for line in lines if line.startswith("COPY ")):
        assert (folder / source).exists()
    assert {each.name.partition("-")[0] for each in (folder / "wheels").iterdir()} == {"leadsman", app}
    assert "{" not in (folder / "DOCS.md").read_text()


def test_an_addon_may_use_the_hardware_of_its_app_and_no_other(addons):
    used = {app: {"uart", "devices", "host_dbus"} & description(addons, app).keys() for app in APPS}

    assert used == {
        "airthings2mqtt": {"host_dbus"},
        "bluetooth2mqtt": {"host_dbus"},
        "caldates2mqtt": set(),
        "gas2mqtt": {"devices"},
        "meter2mqtt": {"uart"},
        "p1meter2mqtt": {"uart"},
        "vito2mqtt": {"uart"},
        "weather2mqtt": set(),
    }


@pytest.fixture
def supervisor(monkeypatch):
    """The Supervisor's answers, each with its status; the last one stays. Its requests are kept."""
    answers, requests = [], []

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self):
            requests.append(self.headers["Authorization"])
            status, document = answers.pop(0) if len(answers) > 1 else answers[0]
            self.send_response(status)
            self.end_headers()
            self.wfile.write(document if isinstance(document, bytes) else json.dumps(document).encode())

        def log_message(self, *_):
            pass

    server = HTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    monkeypatch.setattr(START, "SERVICE", f"http://127.0.0.1:{server.server_port}/services/mqtt")
    monkeypatch.setattr(START, "PAUSE", 0.0)
    yield answers, requests
    server.shutdown()
    thread.join()
    server.server_close()


NONE = (400, {"result": "error", "message": "Service not enabled"})
SERVICE = {
    "host": "core-mosquitto",
    "port": 1883,
    "ssl": False,
    "username": "addons",
    "password": "s3cret",
    "protocol": "3.1.1",
}


def started(options, monkeypatch, tmp_path):
    """The command and the variables with which an add-on becomes its app."""
    (tmp_path / "options.json").write_text(json.dumps(options))
    monkeypatch.setattr(START, "OPTIONS", tmp_path / "options.json")
    monkeypatch.setenv("APP", "p1meter2mqtt")
    monkeypatch.setenv("SUPERVISOR_TOKEN", "t0ken")
    become = []
    monkeypatch.setattr("os.execvpe", lambda *given: become.append(given))
    START.main()
    ((_, command, variables),) = become
    return command, variables


@pytest.mark.system
def test_an_addon_takes_the_broker_of_home_assistant_as_soon_as_there_is_one(supervisor, monkeypatch, tmp_path):
    answers, requests = supervisor
    answers += [NONE, NONE, (200, {"result": "ok", "data": SERVICE})]

    command, variables = started({"port": "/dev/ttyUSB0", "mqtt": {}}, monkeypatch, tmp_path)

    assert command == ["leadsman", "run", "p1meter2mqtt:app"]
    assert variables["P1METER2MQTT_PORT"] == "/dev/ttyUSB0"
    assert variables["MQTT__URL"] == "mqtt://core-mosquitto:1883"
    assert (variables["MQTT__USERNAME"], variables["MQTT__PASSWORD"]) == ("addons", "s3cret")
    assert requests == ["Bearer t0ken"] * 3
    assert "SUPERVISOR_TOKEN" not in variables


@pytest.mark.system
def test_a_broker_with_tls_is_reached_with_tls_and_one_without_users_without_a_password(supervisor):
    supervisor[0].append((200, {"result": "ok", "data": {"host": "a.lan", "port": 8883, "ssl": True}}))

    assert START.broker("t0ken") == {"MQTT__URL": "mqtts://a.lan:8883"}


@pytest.mark.system
def test_an_addon_with_a_broker_of_its_own_asks_nobody(supervisor, monkeypatch, tmp_path):
    own = {"url": "mqtt://192.0.2.7", "username": "ann", "password": "pa55word"}

    _, variables = started({"port": "x", "mqtt": own}, monkeypatch, tmp_path)

    assert [variables[f"MQTT__{key.upper()}"] for key in own] == list(own.values())
    assert supervisor[1] == []


@pytest.mark.system
def test_an_addon_that_finds_no_broker_ends_and_says_what_to_do(supervisor, capsys):
    supervisor[0].append(NONE)

    with pytest.raises(SystemExit, match="install the add-on Mosquitto broker, or write the url of another one"):
        START.found_broker("t0ken")

    assert len(supervisor[1]) == START.TRIES
    assert "Home Assistant names no broker yet: <HTTPError 400" in capsys.readouterr().err
    with pytest.raises(URLError):
        START.broker("t0ken")


@pytest.mark.system
@pytest.mark.parametrize("garbage", [b"", b"\xff", [], {"data": None}, {"data": {"host": "a.lan"}}], ids=repr)
def test_an_answer_of_the_supervisor_that_is_none_is_told_and_it_is_asked_again(supervisor, capsys, garbage):
    supervisor[0].extend([(200, garbage), (200, {"data": SERVICE})])

    assert START.found_broker("t0ken")["MQTT__URL"] == "mqtt://core-mosquitto:1883"
    assert "Home Assistant names no broker yet: " in capsys.readouterr().err


def test_two_entries_of_an_option_with_one_name_are_told_and_none_is_lost_without_a_word():
    sensors = [{"name": "attic", "address": "a"}, {"name": "attic", "address": "b"}]

    with pytest.raises(SystemExit, match="sensors: several entries are called attic; give each a name of its own"):
        dict(START.variables("bluetooth2mqtt", {"sensors": sensors}))
