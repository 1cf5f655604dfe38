"""The topics of an extension in what is said about an app."""

import json
import sys
from typing import TypedDict

import pytest

from leadsman import App
from leadsman.core.extension import Extension
from leadsman.core.extension_tools import Topic
from leadsman.errors import ConfigurationError
from leadsman.tools.access import access_of
from leadsman.tools.cli.main import main
from leadsman.tools.doctor.subject import of_plan


class Alarm(TypedDict):
    above: float


class Alarms(Extension):
    name = "alarm"

    def __init__(self, *topics):
        self._topics = topics

    def topics(self, plan):
        return self._topics


WRITTEN = Topic("write", "house/+/alarm", Alarm)
READ = Topic("read", "siren/+/set", Alarm)


def plan_of(*topics, subscription=None):
    app = App("house", mqtt="mqtt://broker", extensions=[Alarms(*topics)])
    if subscription is not None:

        @app.subscribe(subscription)
        async def hear(value: float) -> None:
            pass

    app.load()
    return app.plan({})


def test_the_access_list_has_them():
    found = access_of(plan_of(WRITTEN, READ))

    assert "house/+/alarm" in found.publish
    assert "siren/+/set" in found.subscribe


def test_the_doctor_offers_those_without_wildcards_and_subscribes_to_the_others():
    subject = of_plan(plan_of(WRITTEN, READ, Topic("write", "siren/state")))

    assert "siren/state" in subject.published
    assert "house/+/alarm" not in subject.published
    assert "siren/+/set" in subject.elsewhere


@pytest.mark.parametrize(
    ("topics", "said"),
    [
        (("alarm",), r"extension 'alarm': topics gave 'alarm'; write Topic\('write', 'house/alarm'\)"),
        ((Topic("publish", "a"),), r"extension 'alarm': topics has the access 'publish'; write 'write' or 'read'"),
        ((Topic("write", "a/#/b"),), r"extension 'alarm': .*'a/#/b'"),
        (None, r"extension 'alarm': topics raised TypeError: 'NoneType' object is not iterable"),
    ],
)
def test_what_is_wrong_is_named_with_the_extension(topics, said, monkeypatch):
    monkeypatch.setattr(Alarms, "topics", lambda self, plan: topics)
    with pytest.raises(ConfigurationError, match=said):
        plan_of()


@pytest.mark.parametrize(("topic_filter", "refused"), [("siren/#", True), ("other/#", False)])
def test_a_subscription_of_the_app_does_not_cover_what_an_extension_publishes(topic_filter, refused):
    topic = Topic("write", "siren/state")
    if not refused:
        assert plan_of(topic, subscription=topic_filter)
        return
    with pytest.raises(
        ConfigurationError, match=r"subscription 'siren/#': it covers 'siren/state', to which the extens"
    ):
        plan_of(topic, subscription=topic_filter)


def test_the_schema_has_their_types(tmp_path, monkeypatch, capsys):
    (tmp_path / "own_topics.py").write_text(
        "from pydantic import BaseModel\n"
        "from leadsman import App\n"
        "from leadsman.extension import Extension, Topic\n"
        "class Alarm(BaseModel):\n    above: float\n"
        "class Alarms(Extension):\n"
        "    name = 'alarm'\n"
        "    def topics(self, plan):\n"
        "        below = plan.topics.prefix\n"
        "        return [Topic('write', f'{below}/+/alarm', Alarm), Topic('read', 'siren/set', Alarm), "
        "Topic('write', 'siren/raw')]\n"
        "app = App('house', mqtt='mqtt://broker', extensions=[Alarms()])\n"
    )
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "own_topics", raising=False)

    code = main(["schema", "own_topics:app"])
    sys.modules.pop("own_topics", None)

    found = json.loads(capsys.readouterr().out)["topics"]
    assert (code, "siren/raw" in found) == (0, False)
    assert found["house/+/alarm"]["properties"]["above"]["type"] == "number"
    assert "direction" not in found["house/+/alarm"]
    assert found["siren/set"]["direction"] == "in"
