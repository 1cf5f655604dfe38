"""What who runs an app may say about its devices, without its code."""

import pytest

from leadsman import (
    App,
)
from leadsman.core.registration.device_settings import OPTIONS, TAKEN
from leadsman.core.settings.sources import Where
from leadsman.errors import InvalidValue


async def read() -> dict[str, float]:
    return {"t": 1.0}


async def take(value: int) -> None: ...


def house(**options):
    app = App("house")
    app.add_telemetry("boiler", read, **({"interval": "1m"} | options))
    app.add_telemetry("room-1", read, interval="1m")
    app.add_command("boiler", take)
    return app


@pytest.fixture
def load(tmp_path):
    def with_file(text, app=None, environment=None, flags=None, name="leadsman.toml"):
        (tmp_path / name).write_text(text)
        app = house() if app is None else app
        app.load(Where(environment or {}, tmp_path, None, flags or {}, tmp_path / "none"))
        return app

    return with_file


def test_every_option_of_a_telemetry_that_may_be_fixed_may_be_set_and_the_other_way_round(load):
    with pytest.raises(InvalidValue, match="cannot change; write one of .*, interval, ") as fixed:
        house(fixed={"zzzzzzzz"})
    with pytest.raises(InvalidValue, match=r"unknown; write one of .* \(from ") as written:
        load("[devices.boiler]\nzzzzzzzz = 1\n")

    may_be_fixed, may_be_set = (
        set(str(each.value).partition("write one of ")[2].partition(" (from ")[0].split(", "))
        for each in (fixed, written)
    )
    assert TAKEN["telemetry"] == may_be_fixed < may_be_set == OPTIONS.keys()
