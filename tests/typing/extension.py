"""An extension whose options type checkers know. Never run; `make check` type-checks it."""

from typing import Annotated, Any, TypedDict, Unpack, assert_type

from leadsman import App
from leadsman.extension import Extension, Option, own_options


class AlarmOptions(TypedDict, total=False):
    alarm_above: Annotated[float, Option(lambda value, name: float(value), notation="number")]


class Alarm(Extension):
    name = "alarm"
    options = {"telemetry": AlarmOptions}  # noqa: RUF012  # as users write it


def alarm(**options: Unpack[AlarmOptions]) -> dict[str, Any]:
    """The options of a decorator; a function of the extension gives them their types."""
    return {**options}


app = App("house", extensions=[Alarm()])


@app.telemetry("boiler", interval=60, **alarm(alarm_above=80.0))
async def boiler() -> dict[str, float]:
    return {"temperature": 1.0}


assert_type(own_options(app.telemetries["boiler"].of_extensions, AlarmOptions)["alarm_above"], float)
alarm(alarm_abov=80.0)  # type: ignore[call-arg]  # a misspelt one is an error
app.telemetry("boiler", interval=60, alarm_above=80.0)  # type: ignore[call-arg]  # the decorator does not know it
app.telemetry("boiler", intervall=60)  # type: ignore[call-arg]  # nor does an extension hide a misspelt one of ours
