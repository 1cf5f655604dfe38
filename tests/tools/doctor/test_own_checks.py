"""Checks that an extension of the app adds to `leadsman doctor`."""

import asyncio
import sys
import threading

import pytest

from leadsman import App, Broker
from leadsman.core.extension import Extension
from leadsman.core.extension_tools import CheckResult
from leadsman.core.mqtt.topics import Topics
from leadsman.tools.doctor import examination
from leadsman.tools.doctor.checks import Finding, findings
from leadsman.tools.doctor.examination import Examination
from leadsman.tools.doctor.subject import OwnCheck, Subject, of_plan

WELL = CheckResult("ok", "each device has a limit")


def one(plan):
    return [WELL]


async def later(plan):
    return [WELL]


def several(plan):
    yield WELL
    yield CheckResult("warn", f"{plan} has no limit", "write alarm_above=80")


def single(plan):
    return WELL


def gives(result):
    """A check that gives this."""
    return named("gives", lambda plan: result)


def gives_later(result):
    async def check(plan):
        return result

    return named("gives", check)


def fails(error):
    """A check that raises this."""

    def check(plan):
        raise error

    return named("fails", check)


def fails_later(error):
    async def check(plan):
        raise error

    return named("fails", check)


def ends(plan):
    sys.exit(3)


def named(name, check):
    check.__name__ = name
    return check


def examined(*checks):
    """The findings of these checks of an app whose broker does not run."""
    own = tuple(OwnCheck("alarm", each.__name__, each, "boiler") for each in checks)
    subject = Subject("house", Broker("127.0.0.1", 1), "house", Topics("house"), (), {}, own_checks=own)
    facts = asyncio.run(Examination(subject, lambda text: None).run())
    return [each for each in findings(facts) if each.group == "alarm"]


def test_what_they_find_is_in_a_group_of_the_extension():
    assert examined(one, later, several) == [
        Finding("alarm", "one", "ok", "each device has a limit"),
        Finding("alarm", "later", "ok", "each device has a limit"),
        Finding("alarm", "several", "ok", "each device has a limit"),
        Finding("alarm", "several", "warn", "boiler has no limit", "write alarm_above=80"),
    ]


GIVE = "let it give a CheckResult such as CheckResult('ok', 'each has a limit'), or a list of them"


@pytest.mark.parametrize(
    ("check", "said", "advice"),
    [
        (fails(ValueError("no limits")), "raised ValueError: no limits", "correct it"),
        (fails(TimeoutError("no answer")), "raised TimeoutError: no answer", "correct it"),
        (fails(GeneratorExit("why")), "raised GeneratorExit: why", "correct it"),
        (ends, "raised SystemExit: 3", "correct it"),
        (fails_later(SystemExit(3)), "raised SystemExit: 3", "correct it"),
        (fails_later(asyncio.CancelledError("mine")), "raised CancelledError: mine", "correct it"),
        (gives(None), "gave None", GIVE),
        (gives_later(None), "gave None", GIVE),
        (gives(3), "gave 3", GIVE),
        (gives("well"), "gave 'well'", GIVE),
        (gives(["well"]), "gave 'well'", GIVE),
        (gives([WELL, None]), "gave None", GIVE),
        (
            gives([CheckResult("purple", "x")]),
            "gave a result whose verdict is 'purple'",
            "write one of 'ok', 'warn', 'fail', 'unknown'",
        ),
        (
            gives([CheckResult(["ok"], "x")]),
            "gave a result whose verdict is ['ok']",
            "write one of 'ok', 'warn', 'fail', 'unknown'",
        ),
        (gives(CheckResult("ok", None)), "gave a result whose text is None", "write a text"),
        (gives([CheckResult("ok", "x", None)]), "gave a result whose advice is None", "write a text"),
    ],
)
def test_what_fails_is_a_finding_and_costs_no_other_check(check, said, advice):
    name = check.__name__

    assert examined(check, single) == [
        Finding("alarm", name, "fail", f"the check {said}", f"in {name!r} of the extension 'alarm', {advice}"),
        Finding("alarm", "single", "ok", "each device has a limit"),
    ]


@pytest.mark.parametrize("kind", ["plain", "async"])
def test_what_does_not_end_is_a_finding(kind, monkeypatch):
    monkeypatch.setattr(examination, "OWN_CHECK_TIMEOUT", 0.05)
    end = threading.Event()

    def plain(plan):
        end.wait()

    async def hangs(plan):
        await asyncio.Event().wait()

    try:
        (found,) = examined(plain if kind == "plain" else hangs)
    finally:
        end.set()

    assert (found.verdict, found.text) == ("fail", "the check did not end within 0.05 s")


class Alarm(Extension):
    name = "alarm"
    checks = {"limits": one}  # noqa: RUF012  # as users write it


def test_they_are_those_of_the_extensions_of_the_app_and_get_its_plan(tmp_path):
    app = App("house", mqtt="mqtt://broker", extensions=[Alarm()])
    app.load()
    plan = app.plan({"STATE_DIRECTORY": str(tmp_path)})

    subject = of_plan(plan)

    assert subject.own_checks == (OwnCheck("alarm", "limits", one, plan),)
    assert subject.at(Broker("other")).own_checks == ()
