"""The access list of an app, in the syntaxes of two brokers."""

import re

import pytest

from leadsman import App, Context
from leadsman.cli.acl import emqx, mosquitto
from leadsman.errors import InvalidValue
from leadsman.mqtt.topics import topic_matches
from leadsman.testing import Scripted
from leadsman.wiring.access import Access, access_of

ACCESS = Access(("house/status", "house/+/state"), ("house/+/set", "house/status"))


def access(app):
    app.load()
    return access_of(app.plan({"STATE_DIRECTORY": "/state"}))


async def adjust(payload: dict): ...


async def steady():
    yield {}


def test_an_app_that_only_reads_needs_no_topics_of_commands():
    app = App("house")
    app.add_source("scale", steady)

    assert access(app) == Access(
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
    found = access(app)

    assert {"house/+/set/result", "house/+/set/response", "house/+/get/response"} <= set(found.publish)
    assert {"house/+/set", "house/+/get"} <= set(found.subscribe)


def test_a_handler_with_a_context_may_publish_anywhere_below_its_device():
    app = App("house")

    @app.telemetry("a", interval=10)
    async def a(context: Context): ...

    found = access(app).publish
    assert any(topic_matches(each, "house/a/map/floor") for each in found)
    assert any(topic_matches(each, "house/a/state") for each in found)
    assert not any(topic_matches(each, "cellar/a/state") for each in found)


def test_the_lines_for_mosquitto_name_the_user_and_join_reading_and_writing():
    text = mosquitto("house", "ann b", ACCESS, "house/doctor/#")

    assert [line for line in text.splitlines() if not line.startswith("#")] == [
        "user ann b",
        "topic readwrite house/status",
        "topic write house/+/state",
        "topic read house/+/set",
    ]
    assert "# topic readwrite house/doctor/#" in text


def test_without_a_user_name_the_lines_say_where_they_belong():
    text = mosquitto("house", None, ACCESS, "house/doctor/#")

    assert "\nuser" not in text
    assert "before the first line that begins with 'user'" in text


@pytest.mark.parametrize("user", ["a\nuser root", " a", "a\r"])
def test_a_user_name_that_would_change_the_list_is_refused(user):
    with pytest.raises(InvalidValue, match="cannot be written in an access list of mosquitto; use another one"):
        mosquitto("house", user, ACCESS, "house/doctor/#")


def test_the_rules_for_emqx_allow_these_topics_and_forbid_the_rest():
    text = emqx("house", 'a"b\\', "house", ACCESS, "house/doctor/#")
    rules = "\n".join(line for line in text.splitlines() if not line.startswith("%%"))

    who = '{username, "a\\"b\\\\"}'
    assert [rules.count(f"{{{rule}") for rule in (f"allow, {who}, publish", f"allow, {who}, subscribe")] == [1, 1]
    assert rules.endswith(f'{{deny, {who}, all, ["#", "$SYS/#"]}}.')
    assert re.findall(r'"(house/[^"]+)"', rules) == [*ACCESS.publish, *ACCESS.subscribe]
    assert rules.count("}.") == 3


def test_without_a_user_name_emqx_knows_the_app_by_its_client_id():
    assert '{allow, {clientid, "house-one"}, publish' in emqx("house", None, "house-one", ACCESS, "house/doctor/#")
