"""Rings an alarm while the value of a device is too high."""

from typing import Annotated, NamedTuple, TypedDict

from leadsman.errors import InvalidValue
from leadsman.extension import (
    HEARTBEAT,
    CheckResult,
    Extension,
    JoinPhase,
    Option,
    Place,
    own_options,
    read_duration,
)


def check_limit(value, name):
    """A number. Raises `InvalidValue`."""
    if not isinstance(value, int | float):
        raise InvalidValue(f"{name} is {value!r}; write a number")
    return float(value)


class AlarmSettings(NamedTuple):
    """The section ``[alarm]``."""

    field: Annotated[str, str] = "t"
    wait: Annotated[float, read_duration] = 30.0


class AlarmOptions(TypedDict, total=False):
    """The option of ``@app.telemetry``."""

    alarm_above: Annotated[float, Option(check_limit)]


def check_limits(plan):
    """A check of ``leadsman doctor``."""
    none = CheckResult("warn", "no device has a limit", "write alarm_above=90 at its decorator")
    return CheckResult("ok", "limits are set") if limits(plan) else none


class Alarm(Extension):
    """What the entry point names."""

    name = "alarm"
    settings = AlarmSettings
    options = {"telemetry": AlarmOptions}
    commands = {"alarms": Place("list the limits of an app", "leadsman_alarm.command", "ALARMS")}
    checks = {"limits": check_limits}

    def joins(self, plan):
        """See `Extension`."""
        alarms = Alarms(plan.section(AlarmSettings), limits(plan))
        yield JoinPhase.BEFORE_DEVICES, alarms.listen
        yield JoinPhase.OBSERVERS, alarms.report


def limits(plan):
    """The limits, by the names of the devices."""
    options = {each.name: own_options(each.of_extensions, AlarmOptions) for each in plan.polled}
    return {name: each["alarm_above"] for name, each in options.items() if each.get("alarm_above") is not None}


class Alarms:
    """The devices whose value is too high, each with the time since which it is."""

    def __init__(self, settings, of_devices):
        self._settings, self._limits = settings, of_devices
        self._since = {}

    def listen(self, core):
        """Take the readings."""
        core.listen(self.on_reading)

    def report(self, core):
        """Add to the heartbeat."""
        core.of(HEARTBEAT).sections.add(lambda status: status.update(alarms=self.ringing(core)))

    def on_reading(self, reading):
        """Follow the value."""
        value, limit = reading.fields.get(self._settings.field), self._limits.get(reading.entity)
        if limit is None or value is None or value <= limit:
            self._since.pop(reading.entity, None)
        else:
            self._since.setdefault(reading.entity, reading.at)

    def ringing(self, core):
        """The names of the devices whose value has been too high for long enough."""
        now = core.environment.clock.monotonic()
        late = (name for name, since in self._since.items() if now - since >= self._settings.wait)
        return sorted(name for name in late if name in core.roster)
