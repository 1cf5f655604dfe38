"""The access list of an app, in the syntaxes of two brokers."""

import re
import sys
from typing import Annotated

import pytest

from leadsman import App, Content, Context, Delivery, Discovery
from leadsman.core.mqtt.topics import topic_matches
from leadsman.testing import Harness, Scripted
from leadsman.tools.cli.main import main
from leadsman_rigs.stage import Access, access_of

APP = """
from leadsman import App
app = App("house")
@app.source("scale")
async def scale():
    yield {}
@app.command("lamp")
async def lamp(payload: dict): ...
"""


READ_ONCE = {"house/registry/#"}
"""What the app reads at its start, and listens to no more then."""


async def adjust(payload: dict): ...


async def steady():
    yield {}


def test_an_app_that_only_reads_needs_no_topics_of_commands():
    app = App("house")
    app.add_source("scale", steady)

    assert access_of(app) == Access(
        (
            *("house/status", "house/registry/#", "house/error", "house/introspect/response"),
            *("house/+/state", "house/+/availability", "house/+/error", "house/+/ledger", "house/+/+/set/response"),
        ),
        ("house/introspect", "house/+/+/set", "house/status", "house/registry/#"),
    )


def test_commands_and_polls_on_demand_add_theirs():
    app = App("house")
    app.add_telemetry("a", Scripted({}), interval=10)
    app.add_command("b", adjust)
    found = access_of(app)

    assert {"house/+/set/result", "house/+/set/response", "house/+/get/response"} <= set(found.publish)
    assert {"house/+/set", "house/+/get"} <= set(found.subscribe)


def test_a_handler_with_a_context_may_publish_anywhere_below_its_device():
    app = App("house")

    @app.telemetry("a", interval=10)
    async def a(context: Context): ...

    found = access_of(app).publish
    assert any(topic_matches(each, "house/a/map/floor") for each in found)
    assert any(topic_matches(each, "house/a/state") for each in found)
    assert not any(topic_matches(each, "cellar/a/state") for each in found)


def test_a_node_among_others_reads_and_writes_the_lease_the_failure_state_and_the_nodes():
    app = App("house", keep_state=True)
    app.add_source("scale", steady)
    found = access_of(app, standby__enabled="true")

    for topic in ("house/lease", "house/+/resilience", "house/nodes/+"):
        assert topic in found.publish
        assert topic in found.subscribe
    assert "house/nodes/+/drain" in found.subscribe
    assert "house/nodes/+/drain/response" in found.publish


def test_discovery_subscriptions_and_a_history_add_theirs():
    app = App("house", discovery=Discovery(prefix="ha"))
    app.add_telemetry("a", Scripted({}), interval=10, delivery=Delivery(history=100))
    app.add_subscription("zigbee2mqtt/+/battery", adjust)
    app.add_subscription("price", adjust, enabled=False)
    found = access_of(app)

    assert {"house/+/history", "house/+/health", "ha/device/house/+/config"} <= set(found.publish)
    assert found.subscribe[-3:] == ("zigbee2mqtt/+/battery", "ha/device/house/+/config", "ha/status")
    assert not any(topic_matches(each, "house/a/set") for each in found.publish)


def test_an_app_may_do_under_its_list_all_that_it_does():
    app = App("house", discovery="homeassistant")
    app.add_telemetry("a", Scripted({"t": 1}), interval=10, delivery=Delivery(history=100))
    app.add_command("lamp", adjust)
    app.add_subscription("zigbee2mqtt/+/battery", adjust)
    allowed = access_of(app)

    with Harness(app) as harness:
        harness.run("5s")
        sent = {message.topic for message in harness.broker.log}
        assert "homeassistant/device/house/a/config" in sent
        assert {topic for topic in sent if not any(topic_matches(each, topic) for each in allowed.publish)} == set()
        (connection,) = harness.broker._clients.values()
        assert set(connection.filters) | READ_ONCE == set(allowed.subscribe)


@pytest.fixture
def acl(tmp_path, monkeypatch, capsys):
    """What `leadsman acl` prints of an app, and its exit code."""

    def acl(*arguments, user=None):
        monkeypatch.chdir(tmp_path)
        monkeypatch.syspath_prepend(tmp_path)
        monkeypatch.delitem(sys.modules, "house_acl", raising=False)
        (tmp_path / "house_acl.py").write_text(APP)
        settings = [] if user is None else ["--set", f"mqtt.username={user}", "--set", "mqtt.password=x"]
        code = main(["acl", "house_acl:app", "--mqtt", "mqtt://x", *settings, *arguments])
        out, err = capsys.readouterr()
        return code, out if code == 0 else err

    return acl


def house():
    """The access of the same app."""
    app = App("house")
    app.add_source("scale", steady)
    app.add_command("lamp", adjust)
    return access_of(app)


def test_the_lines_for_mosquitto_name_the_user_and_join_reading_and_writing(acl):
    _, text = acl(user="ann b")

    user, *topics = [line for line in text.splitlines() if not line.startswith("#")]
    assert user == "user ann b"
    assert topics == [
        "topic readwrite house/status",
        "topic readwrite house/registry/#",
        *(f"topic write {each}" for each in house().publish if each not in house().subscribe),
        *(f"topic read {each}" for each in house().subscribe if each not in house().publish),
    ]
    assert "# topic readwrite house/doctor/#" in text


def test_without_a_user_name_the_lines_say_where_they_belong(acl):
    _, text = acl()

    assert "\nuser" not in text
    assert "before the first line that begins with 'user'" in text


@pytest.mark.parametrize("user", ["a\nuser root", " a", "a\r"])
def test_a_user_name_that_would_change_the_list_is_refused(acl, user):
    code, error = acl(user=user)

    assert code == 78
    assert "cannot be written in an access list of mosquitto; use another one" in error


def test_the_rules_for_emqx_allow_these_topics_and_forbid_the_rest(acl):
    _, text = acl("--format", "emqx", user='a"b\\')
    rules = "\n".join(line for line in text.splitlines() if not line.startswith("%%"))

    who = '{username, "a\\"b\\\\"}'
    assert [rules.count(f"{{{rule}") for rule in (f"allow, {who}, publish", f"allow, {who}, subscribe")] == [1, 1]
    assert rules.endswith(f'{{deny, {who}, all, ["#", "$SYS/#"]}}.')
    assert re.findall(r'"(house/[^"]+)"', rules) == [*house().publish, *house().subscribe]
    assert rules.count("}.") == 3


def test_without_a_user_name_emqx_knows_the_app_by_its_client_id(acl):
    _, text = acl("--format", "emqx", "--client-id", "house-one")

    assert '{allow, {clientid, "house-one"}, publish' in text


@pytest.mark.parametrize("command", ["acl", "check"])
def test_discovery_is_switched_on_by_the_flag_that_the_app_is_run_with(command, tmp_path, monkeypatch, capsys):
    module = tmp_path / f"house_for_{command}.py"
    module.write_text(
        "from leadsman import App\napp = App('house')\n"
        "@app.telemetry('kitchen', interval=1)\nasync def read():\n    return {'co2': 400}\n"
    )
    monkeypatch.chdir(tmp_path)

    assert main([command, str(module), "--mqtt", "mqtt://x", "--discovery", "homeassistant"]) == 0

    shown = {"acl": "topic readwrite homeassistant/device/house/+/config", "check": "flag discovery.convention"}
    assert shown[command] in capsys.readouterr().out


def test_values_at_topics_of_their_own_need_all_topics_below_the_devices():
    app = App("house")
    app.add_telemetry("a", Scripted({}), interval=10, layout="fields")

    assert "house/+/#" in access_of(app).publish


def test_bytes_need_their_topic():
    async def picture() -> Annotated[bytes, Content("image/jpeg")]:
        return b""

    app = App("house")
    app.add_telemetry("a", picture, interval=10, field="image")
    app.add_telemetry("b", picture, interval=10, field="image")
    published = access_of(app).publish

    assert published.count("house/+/image") == 1
    assert "house/+/#" not in published
