import math
from collections.abc import AsyncIterator
from typing import Literal

import pytest

from leadsman import App
from leadsman.core.registration.command import CommandOptions
from leadsman.core.registration.declaration import declared, settable
from leadsman.core.registration.device_settings import OPTIONS, TAKEN
from leadsman.core.registration.event import EventOptions
from leadsman.core.registration.source import SourceOptions
from leadsman.core.registration.subscription import SubscriptionOptions
from leadsman.core.registration.telemetry import TelemetryOptions
from leadsman.errors import ConfigurationError

DECORATORS = [TelemetryOptions, SourceOptions, EventOptions, CommandOptions, SubscriptionOptions]


@pytest.mark.parametrize("decorator", DECORATORS, ids=lambda each: each.__name__)
def test_each_option_of_a_decorator_is_declared_beside_its_type(decorator):
    assert list(declared(decorator)) == list(decorator.__annotations__)


def test_what_the_settings_may_set_is_what_is_declared():
    of_decorators = set[str]().union(*map(settable, DECORATORS))

    assert set(OPTIONS) == of_decorators == set[str]().union(*TAKEN.values())


def test_an_app_may_fix_what_the_settings_of_that_device_could_set_and_nothing_else():
    app = App("app")

    with pytest.raises(ConfigurationError, match="fixed has 'interval', which the settings cannot change"):
        app.add_command("lamp", reads, fixed={"interval"})


def test_an_option_of_several_decorators_is_written_in_one_way_in_the_settings():
    notations = {}
    for decorator in DECORATORS:
        for name, option in declared(decorator).items():
            notations.setdefault(name, set()).add((option.notation, option.setting, option.replaces))

    assert {name for name, each in notations.items() if len(each) > 1} == set()


async def reads():
    return {"t": 1}


async def pushes():
    yield {"t": 1}


async def happens() -> AsyncIterator[Literal["press"]]:
    yield "press"


class Strange:
    pass


VALUES = (Strange(), Strange, -1, math.nan, "\x00", ["x"], {"x": 1}, b"x", True)
KINDS = {
    "telemetry": ("x", reads, {"interval": 60}, TelemetryOptions),
    "periodic": ("x", reads, {"interval": 60}, TelemetryOptions),
    "source": ("x", pushes, {}, SourceOptions),
    "event": ("x", happens, {}, EventOptions),
    "command": ("x", reads, {}, CommandOptions),
    "subscription": ("other/+", reads, {"device": "x"}, SubscriptionOptions),
}


@pytest.mark.parametrize(
    ("kind", "option"), [(kind, option) for kind, (*_, decorator) in KINDS.items() for option in declared(decorator)]
)
def test_a_value_that_an_option_cannot_have_is_an_error_that_names_it(kind, option):
    name, handler, needed, _ = KINDS[kind]
    kept = {} if option == "schedule" else needed

    errors = [
        error_of(lambda value=value: getattr(App("house"), f"add_{kind}")(name, handler, **{**kept, option: value}))
        for value in VALUES
    ]

    assert [error for error in errors if error is not None and option not in error] == []


def error_of(register):
    try:
        register()
    except ConfigurationError as error:
        return str(error)
    return None
