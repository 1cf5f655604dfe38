"""Logs events other than outages: the connection, circuits, pauses, missed polls, commands, and each call at DEBUG."""

import errno
import logging
import math
from collections.abc import Callable
from datetime import UTC, datetime

from leadsman.core.events import (
    AdapterFailed,
    AdapterReopened,
    AppFault,
    AttemptFailed,
    CircuitMoved,
    CircuitRequested,
    CommandDone,
    DeviceHeld,
    DeviceLeft,
    DeviceReleased,
    Event,
    FieldsLeftOut,
    LinkDown,
    LinkLimited,
    LinkSettled,
    LinkUp,
    MessageDropped,
    MessageRefused,
    MessageRepeated,
    PollDeferred,
    PollMissed,
    PrefixShared,
    ReadingTaken,
    StateFailed,
    StateWritten,
    SubscriptionFailed,
)
from leadsman.core.loop.durations import human
from leadsman.core.loop.timers import Timers
from leadsman.core.loop.user_code import frames_of
from leadsman.core.monitoring.bugs import is_bug, message_of, place, placed
from leadsman.core.resilience.policy import REASONS
from leadsman.core.text import clean, count_noun, describe, log_fields
from leadsman.core.text.log_lines import MAX_SUBJECTS, Lines, left_out_before, others
from leadsman.errors import Busy, PayloadError, StateInUse

logger = logging.getLogger("leadsman")

MAX_REASONS = 20
"""Reasons of one outage of the broker that are logged, each of them once."""
LONG_OUTAGE_SECONDS = 60.0
"""Seconds. An outage of the broker that lasts so long has lines, however often the connection broke before."""
REMIND = 3600.0
"""Seconds between two log lines about a topic whose messages the broker does not take, or about its Receive
Maximum, or about pauses of a device."""
MIN_GAP_SECONDS = 60.0
"""Seconds between two log lines about dropped messages, missed polls, failed commands, or outages that have no lines of
their own. The gap doubles each time."""
TIMER_TOLERANCE = 0.01
"""Seconds by which a timer may ring before its time, at most; see `leadsman.core.loop.timers`."""
MAX_GAP_SECONDS = 3600.0
"""Seconds. The gap between two such lines does not grow further."""
MAX_BUGS = 1000
"""Bugs whose traceback is not logged again. Past that number, the oldest may have a second one."""


def on_reading(event: Event) -> None:
    """Log a successful poll. It observes only if the log level shows such lines, since it is called at each poll."""
    if type(event) is ReadingTaken:
        about = log_fields("read", event.entity, duration=round(event.duration, 6))
        logger.debug("%s: poll succeeded in %.3f s", event.entity, event.duration, extra=about)


class Tally:
    """Counts events that are logged once a minute at most, and less often the longer they continue.

    Args:
        noun: what is counted.
        line: what the log line contains between the count so far and the latest cause.
        event: the name of the event in JSON logs.
    """

    def __init__(self, noun: str, line: str, event: str) -> None:
        self._noun = noun
        self._line = line
        self._event = event
        self._count = self._logged = 0
        self._last: Callable[[], str] = str
        self._next_at = -math.inf
        self._gap = MIN_GAP_SECONDS

    def add(self, number: int, last: Callable[[], str], now: float) -> float | None:
        """Add to the count, with what makes the text of its cause. Log it now and return None, or return when to
        `ring`."""
        waiting = self._count > self._logged
        self._count += number
        self._last = last
        if now >= self._next_at:
            self._log(now)
        return None if waiting or self._count == self._logged else self._next_at

    def ring(self, now: float) -> None:
        """Log the events since the last line, if there are any, and it is time for that."""
        if self._count > self._logged and now >= self._next_at - TIMER_TOLERANCE:
            self._log(now)

    def _log(self, now: float) -> None:
        self._gap = MIN_GAP_SECONDS if now - self._next_at >= MAX_GAP_SECONDS else min(MAX_GAP_SECONDS, 2 * self._gap)
        self._next_at = now + self._gap
        self._logged = self._count
        count, about = count_noun(self._count, self._noun), log_fields(self._event, count=self._count)
        logger.warning("%s %s %s", count, self._line, self._last(), extra=about)


class Tracebacks:
    """Which tracebacks have been logged. Each bug, which is an error at a place of a handler, has one in the log, and
    one at each occurrence if the log shows DEBUG."""

    def __init__(self) -> None:
        self._known: dict[tuple[str, str, str | None], None] = {}

    def lines(self, about: str, error: BaseException) -> list[str]:
        """The lines of a traceback that is due; none for an error that is no bug. `about`: the handler."""
        if not is_bug(error):
            return []
        key = about, type(error).__name__, place(error)
        if key in self._known and not logger.isEnabledFor(logging.DEBUG):
            return []
        self._known[key] = None
        if len(self._known) > MAX_BUGS:
            del self._known[next(iter(self._known))]
        return frames_of(error)

    def log(self, about: str, error: BaseException) -> None:
        """Log the traceback that is due on a line of its own, after lines that count several errors."""
        lines = self.lines(about, error)
        if lines:
            fields = log_fields("bug", handler=about, error_type=type(error).__name__)
            logger.warning("%s", "\n".join([f"{about}: {placed(error)}", *lines]), extra=fields)


class Log:
    """Logs all events that are not an outage of a device: the connection, circuits, drops, faults. It logs each once,
    not once a poll. It is an alarm of `Timers`, which rings when there are counts that no line has reported yet.

    Args:
        name: the app's name.
        prefix: the app's topic prefix.
        lines: limits the log lines of each device.
        timers: ring it to report the remaining counts.
    """

    def __init__(self, name: str, prefix: str, lines: Lines, timers: Timers) -> None:
        self._name = name
        self._prefix = prefix
        self._lines = lines
        self._others = others()
        self._tracebacks = Tracebacks()
        self._timers = timers
        self._link_down_at: float | None = None
        self._link_reasons: set[str] = set()
        self._will_refused: str | None = None
        """The refusal of a will that was logged last."""
        self._unlogged_breaks: list[LinkDown] = []  # of an outage that has no lines, since there were many
        self._link_timed = False
        self._link_clash = False
        self._link_topic: str | None = None
        self._old_version_logged = False
        self._refused: dict[str, tuple[int, float]] = {}
        self._limited_at = -math.inf
        self._circuits_open: set[str] = set()
        self._pauses: dict[str, tuple[int, float]] = {}  # since the last line about a pause, and when that was
        self._goodbyes: dict[str, tuple[str, float]] = {}  # the reason in the last line about one, and when that was
        self._missed = Tally("poll", "missed so far, the last one of", "missed")
        self._commands = Tally("command", "failed so far, the last one for", "command failed")
        self._dropped = Tally("message", "dropped so far, the last one of", "dropped")
        breaks = "of the connection to the broker so far, the last one:"
        self._breaks = Tally("more break", breaks, "link breaks")
        """Those of outages that have no lines of their own, since there were many."""

    def observe(self, event: Event) -> None:
        """Process one event. No reading needs to be passed to it."""
        match event:
            case LinkUp():
                self._link_up(event)
            case LinkDown():
                self._link_down(event)
            case LinkSettled():
                self._link_clash = False
                self._link_down_at = None
                self._link_reasons.clear()
                if not self._unlogged_breaks:
                    about = log_fields("link settled")
                    logger.info("%s: the connection to the broker is stable again", self._name, extra=about)
                self._unlogged_breaks.clear()
            case CircuitMoved():
                self._circuit(event)
            case CircuitRequested() | DeviceHeld() | DeviceReleased() | DeviceLeft():
                self._person_acted(event)
            case PollMissed(entity=entity, polls=polls, cause=cause):
                self._count(self._missed, polls, lambda: f"{entity}: {cause or LATE_APP}", event.at)
            case MessageDropped(topic=topic, reason=reason, messages=messages):
                self._count(self._dropped, messages, lambda: f"{topic}: {reason}", event.at)
            case CommandDone():
                self._command(event)
            case AttemptFailed():
                self._call(event)
            case PollDeferred(seconds=seconds, reason=reason):
                self._paused(event, seconds, reason)
            case _:
                self._fault(event)

    def ring(self, now: float) -> None:
        """Log the remaining counts."""
        for tally in (self._missed, self._commands, self._dropped, self._breaks):
            tally.ring(now)
        self._link_timed = False
        if self._unlogged_breaks and now >= self._unlogged_breaks[0].at + LONG_OUTAGE_SECONDS:
            for event in self._unlogged_breaks:
                _log_down(event)
            self._unlogged_breaks.clear()
        elif self._unlogged_breaks:
            self._await_length()

    def _count(self, tally: Tally, number: int, last: Callable[[], str], now: float) -> None:
        due = tally.add(number, last, now)
        if due is not None:
            self._timers.add(due, self)

    def _fault(self, event: Event) -> None:
        match event:
            case MessageRefused():
                self._refusal(event)
            case LinkLimited():
                self._limited(event)
            case FieldsLeftOut(entity=entity, fields=names):
                about = log_fields("fields left out", entity)
                logger.warning(
                    "%s: fields left out because they are NaN or infinite: %s",
                    entity,
                    clean(", ".join(names)),
                    extra=about,
                )
            case PrefixShared():
                self._shared(event)
            case MessageRepeated(topic=topic):
                before = self._others.left_out(topic, event.at)
                if before is not None:
                    text = (
                        "a message at %s came again: its acknowledgement did not reach the broker. It is handled once%s"
                    )
                    logger.info(text, clean(topic), left_out_before(before), extra=log_fields("message repeated"))
            case SubscriptionFailed(reason=reason):
                about = log_fields("subscription failed", reason=reason)
                text = "%s; messages to it do not arrive. Check the broker's access list, see leadsman acl."
                logger.warning(text, reason, extra=about)
            case AdapterReopened(adapter=adapter, how=how):
                logger.debug("%s was %s", adapter, how, extra=log_fields(f"adapter {how}", adapter=adapter))
            case AdapterFailed(adapter=adapter, error=error):
                wait = human(round(event.retry_in, 1))
                why = placed(error) if is_bug(error) else describe(error)
                text = f"{adapter} cannot be opened: {why}; next attempt in {wait}"
                text = "\n".join([text, *self._tracebacks.lines(f"opening {adapter}", error)])
                about = log_fields("adapter failed", adapter=adapter, error_type=type(error).__name__)
                logger.warning("%s", text, extra=about)
            case StateFailed(file=file, error=error):
                about = log_fields("state failed", file=file, error_type=type(error).__name__)
                if isinstance(error, StateInUse):
                    logger.warning(
                        "%s. This one keeps in memory what belongs into %s", describe(error), file, extra=about
                    )
                    return
                what = "%s cannot be read or written, and the app keeps its state in memory only: %s%s"
                logger.warning(what, file, describe(error), _remedy(error), extra=about)
            case StateWritten(file=file):
                logger.info("%s is written again", file, extra=log_fields("state written", file=file))
            case AppFault():
                self._app_fault(event)

    def _app_fault(self, event: AppFault) -> None:
        """Log a fault: in a part of the user's that belongs to no poll, or in one of ours."""
        where, error = event.where, event.error
        before = self._others.left_out(where, event.at)
        if before is None:
            return
        text = "\n".join([f"{where}: {placed(error)}{left_out_before(before)}", *self._tracebacks.lines(where, error)])
        logger.error("%s", text, extra=log_fields("fault", error_type=type(error).__name__))

    def _shared(self, event: PrefixShared) -> None:
        before = self._others.left_out("", event.at)  # no device has this name
        if before is None:
            return
        more = left_out_before(before)
        if event.reason is not None:
            logger.warning("%s%s", event.reason, more, extra=log_fields("prefix shared", reason=event.reason))
        else:
            text = "no other app publishes below %s/ any more%s"
            logger.info(text, self._prefix, more, extra=log_fields("prefix free", prefix=self._prefix))

    def _person_acted(self, event: "CircuitRequested | DeviceHeld | DeviceReleased | DeviceLeft") -> None:
        entity = event.entity
        if isinstance(event, DeviceLeft) and self._is_repeated(event):
            return
        before = self._others.left_out(entity, event.at)
        if before is None:
            return
        more = left_out_before(before)
        match event:
            case DeviceLeft(reason=reason):
                about = log_fields("left", entity, reason=reason)
                logger.info("%s: marked unavailable: %s%s", entity, reason, more, extra=about)
            case DeviceHeld(by=by) if by:
                about = log_fields("held", entity, by=by)
                logger.info("%s: held by %s until it is released%s", entity, by, more, extra=about)
            case DeviceHeld():
                from shlex import quote  # few devices are held

                how = f"leadsman release {quote(entity)} --prefix {quote(self._prefix)}"
                about = log_fields("held", entity)
                logger.error("%s: held until somebody releases it with: %s%s", entity, how, more, extra=about)
            case DeviceReleased(by=by):
                about = log_fields("released", entity, by=by)
                logger.info("%s: released%s%s", entity, f" by {by}" if by else "", more, extra=about)
            case CircuitRequested(action=action, by=by):
                about = log_fields("circuit requested", entity, action=action, by=by)
                text = "%s: circuit %s (requested by %s)%s"
                logger.info(text, entity, _ACTIONS[action], by, more, extra=about)

    def _is_repeated(self, event: DeviceLeft) -> bool:
        """Whether a device that may be marked so at each poll has a line of the last hour with the same reason."""
        reason, logged_at = self._goodbyes.get(event.entity, ("", -math.inf))
        if event.reason == reason and event.at - logged_at < REMIND:
            return True
        self._goodbyes[event.entity] = (event.reason, event.at)
        if len(self._goodbyes) > MAX_SUBJECTS:
            del self._goodbyes[next(iter(self._goodbyes))]
        return False

    def _paused(self, event: PollDeferred | AttemptFailed, pause: float, reason: str | None) -> None:
        """Log that a device asked for a pause: at INFO once an hour at most, since it may ask at each poll."""
        count, logged_at = self._pauses.get(event.entity, (0, -math.inf))
        level = logging.INFO if event.at - logged_at >= REMIND else logging.DEBUG
        self._pauses[event.entity] = (0, event.at) if level == logging.INFO else (count + 1, logged_at)
        if not logger.isEnabledFor(level):
            return
        length = (
            f"of {human(round(pause, 1))}, until {_local(event.wall + pause)}" if pause > 0 else "until its next poll"
        )
        why = f": {clean(reason)}" if reason else ""
        more = f" ({count_noun(count, 'pause')} since the last such line)" if count and level == logging.INFO else ""
        text = "%s: the device asked for a pause %s%s%s"
        about = log_fields("deferred", event.entity, seconds=round(pause, 1), reason=reason)
        logger.log(level, text, event.entity, length, why, more, extra=about)

    def _call(self, event: AttemptFailed) -> None:
        if event.requested and event.delay is not None:
            self._paused(event, event.delay, getattr(event.error, "reason", None))
        if not logger.isEnabledFor(logging.DEBUG):
            return
        kind = type(event.error).__name__
        then = REASONS.get(event.reason, event.reason) if event.delay is None else f"again in {event.delay:.1f} s"
        about = log_fields("call failed", event.entity, error_type=kind, attempt=event.attempt, reason=event.reason)
        logger.debug(
            "%s: call %d failed: %s: %s (%s)",
            event.entity,
            event.attempt,
            kind,
            message_of(event.error),
            then,
            extra=about,
        )

    def _link_up(self, event: LinkUp) -> None:
        if event.will_refused is not None and event.will_refused != self._will_refused:
            self._will_refused = event.will_refused
            text = "%s: %s. Let the broker's access list allow it, see leadsman acl."
            about = log_fields("will refused", reason=event.will_refused)
            logger.warning(text, self._name, clean(event.will_refused), extra=about)
        if self._link_clash or self._link_topic is not None:
            return  # not stable yet: `LinkSettled` follows; or the connection broke on a message, which was logged
        lasted = "" if self._link_down_at is None else f" after {human(round(event.at - self._link_down_at, 1))}"
        about = log_fields("link up", protocol=event.protocol, client=event.client, broker=event.broker)
        where = "" if event.broker is None else f" {event.broker}"
        if not self._unlogged_breaks:
            what = "%s: connected to the broker%s with MQTT %s by %s%s"
            logger.info(what, self._name, where, event.protocol, event.client, lasted, extra=about)
        self._unlogged_breaks.clear()
        if event.protocol == "5.0":
            self._old_version_logged = (
                True  # a connection of 3.1.1 after this one is a guess, while the broker is silent
            )
        elif not self._old_version_logged:
            self._old_version_logged = True
            hint = (
                "With MQTT 3.1.1 readings arrive without the time at which they were taken; "
                "a consumer that wants it gets it with Delivery(taken_at='payload')"
            )
            logger.info("%s", hint, extra=log_fields("old protocol", protocol=event.protocol))
        self._link_down_at = None
        self._link_reasons.clear()

    def _link_down(self, event: LinkDown) -> None:
        if event.version is not None:
            about = log_fields("old broker", reason=event.reason)
            logger.info("%s; trying MQTT %s", clean(event.reason), event.version, extra=about)
            return
        if self._link_down_at is None:
            self._link_down_at = event.at
        clashes = event.clash and not self._link_clash
        self._link_clash = event.clash
        self._link_topic = event.topic
        if event.topic is not None:
            return
        if event.reason in self._link_reasons or len(self._link_reasons) >= MAX_REASONS:
            return
        first = not self._link_reasons or clashes
        self._link_reasons.add(event.reason)
        if first and self._others.left_out(_CLASHES if event.clash else _OUTAGES, event.at) is None:
            self._count(self._breaks, 1, lambda: clean(event.reason), event.at)
            self._unlogged_breaks = [event]
            self._await_length()
        elif self._unlogged_breaks and not first:
            self._unlogged_breaks.append(event)
        else:
            self._unlogged_breaks.clear()
            _log_down(event)

    def _await_length(self) -> None:
        """Ring when the outage that has no lines has become a long one."""
        if not self._link_timed:
            self._link_timed = True
            self._timers.add(self._unlogged_breaks[0].at + LONG_OUTAGE_SECONDS, self)

    def _refusal(self, event: MessageRefused) -> None:
        count, logged_at = self._refused.get(event.topic, (0, -math.inf))
        if event.at - logged_at < REMIND:
            self._refused[event.topic] = count + 1, logged_at
            return
        self._refused[event.topic] = count + 1, event.at
        times = f"; {count + 1} times so far" if count else ""
        logger.warning(
            "The broker refuses messages to %s: %s%s. They are kept and sent again.",
            clean(event.topic),
            event.reason,
            times,
            extra=log_fields("refused", topic=event.topic),
        )

    def _limited(self, event: LinkLimited) -> None:
        if event.at - self._limited_at < REMIND:
            return
        self._limited_at = event.at
        logger.warning(
            "Readings come faster than the broker accepts them, and arrive late: the broker allows %s in flight "
            "(Receive Maximum). With mosquitto, set max_inflight_messages 1000.",
            count_noun(event.allowed, "message"),
            extra=log_fields("limited by the broker", allowed=event.allowed),
        )

    def _circuit(self, event: CircuitMoved) -> None:
        entity, line, level = event.entity, "", logging.INFO
        if event.state == "open" and entity not in self._circuits_open:
            self._circuits_open.add(entity)
            polls = count_noun(event.failures, "failed poll")
            line, level = (
                f"circuit open after {polls}; the device is polled less often until it answers",
                logging.WARNING,
            )
        elif event.state == "closed" and entity in self._circuits_open:
            self._circuits_open.discard(entity)
            line = "" if event.by_hand else "circuit closed"  # what the person asked for has a line of its own
        left_out = self._lines.left_out(entity, event.at) if line else None
        if left_out is not None:
            about = log_fields(f"circuit {event.state}", entity, failures=event.failures)
            logger.log(level, "%s: %s%s", entity, line, left_out_before(left_out), extra=about)

    def _command(self, event: CommandDone) -> None:
        device, error = event.device, event.error
        if error is None:
            about = log_fields("command done", device)
            logger.debug("%s: command done in %.1f s", device, event.duration, extra=about)
        elif type(error) in (Busy, PayloadError):  # thousands may come: their text is made for a line only
            kind, said = type(error).__name__, str(error)
            self._count(self._commands, 1, lambda: f"{clean(device)}: {kind}: {clean(said) or kind}", event.at)
        else:
            text = f"{clean(device)}: {placed(error)}"
            self._count(self._commands, 1, lambda: text, event.at)
            self._tracebacks.log(f"the command of {clean(device)}", error)


_OUTAGES, _CLASHES = "/outages", "/clashes"
"""The subjects of outages of the broker, and of those that another client with our id causes, which needs a person. No
device has such a name."""
LATE_APP = "the app was late, because the machine slept or has too much to do"
_ACTIONS = {
    "isolate": "isolated; the device is not polled until somebody closes the circuit",
    "close": "closed; the device is polled as after a success",
    "disable": "disabled; the device is polled whatever fails",
}


def _log_down(event: LinkDown) -> None:
    why, about = clean(event.reason), log_fields("link down", broker=event.broker)
    then = "again" if event.broker is None else event.broker
    logger.warning("No connection to the broker: %s. Readings are kept; trying %s.", why, then, extra=about)


def _remedy(error: BaseException) -> str:
    """The remedy for a file that cannot be written; empty if its error explains it."""
    text = str(error)
    if any(remedy in text for remedy in ("STATE_DIRECTORY", "delete something", "move the file away")):
        return ""
    if getattr(error, "sqlite_errorname", "") == "SQLITE_FULL" or getattr(error, "errno", None) == errno.ENOSPC:
        return "; delete something on its disk"
    return "; let the app write there, or give it another STATE_DIRECTORY"


def _local(wall: float) -> str:
    """Epoch seconds as a person reads them, with the offset."""
    return datetime.fromtimestamp(wall, UTC).astimezone().isoformat(" ", "seconds")
