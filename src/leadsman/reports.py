"""Who speaks when something happens: the error topics and the log. Both tell an outage from the same notices."""

import logging
import math
from collections.abc import Callable

from leadsman import outage as outages
from leadsman.clock import rfc3339
from leadsman.durations import human
from leadsman.events import (
    AdapterFailed,
    AdapterReopened,
    AppFault,
    AttemptFailed,
    CircuitMoved,
    CommandDone,
    Event,
    FieldsLeftOut,
    Held,
    LinkDown,
    LinkSettled,
    LinkUp,
    MessageDropped,
    MessageRefused,
    PollDeferred,
    PollMissed,
    ReadingTaken,
    Released,
    StateFailed,
    StateWritten,
    SubscriptionFailed,
)
from leadsman.mqtt.message import Message
from leadsman.mqtt.topics import Topics, encode
from leadsman.outage import Notice, Outage
from leadsman.wording import clean, told

logger = logging.getLogger("leadsman")

MOST_REASONS = 20
"""Reasons of one outage of the broker that are logged, each of them once."""
REMIND = 3600.0
"""Seconds between two log lines about a topic whose messages the broker does not take."""
TELL_AGAIN = 60.0
"""Seconds between two log lines about dropped messages, or about missed polls; the counts go on in between."""


class Outages:
    """Observes polls and tells each outage: to the log, and to ``{prefix}/{device}/error``."""

    def __init__(self, topics: Topics, send: Callable[[Message], None]) -> None:
        self._topics = topics
        self._send = send
        self._outages: dict[str, Outage] = {}

    def restore(self, entity: str, outage: Outage) -> None:
        """Go on with an outage that began before a restart: it has been told."""
        self._outages[entity] = outage

    def observe(self, event: Event) -> None:
        """Take one event."""
        if type(event) is ReadingTaken and event.entity not in self._outages:
            return  # nearly every event there is
        if isinstance(event, AppFault | StateFailed):
            where = event.where if isinstance(event, AppFault) else f"the state file {clean(event.file)}"
            payload = {"event": "fault", "where": where, "type": type(event.error).__name__}
            self._send(
                Message(self._topics.error, encode(payload | {"message": told(event.error), "at": rfc3339(event.wall)}))
            )
            return
        entity: str | None = getattr(event, "entity", None)
        if entity is None:
            return
        before = self._outages.get(entity)
        after, notice = outages.step(before, event)
        if after is not None:
            self._outages[entity] = after
        elif before is not None:
            del self._outages[entity]
        if notice is not None:
            self._tell(notice)

    def _tell(self, notice: Notice) -> None:
        payload = {
            "event": notice.kind,
            "type": notice.type,
            "message": notice.message,
            "failures": notice.failures,
            "since": rfc3339(notice.since),
            "outage_seconds": round(notice.seconds, 3),
        }
        self._send(Message(self._topics.device_error(notice.entity), encode(payload)))
        lasted = human(round(notice.seconds))
        skipped = f", {notice.skipped} polls skipped by the open circuit" if notice.skipped else ""
        match notice.kind:
            case "onset":
                calls = f" ({notice.attempts} calls)" if notice.attempts > 1 else ""
                logger.warning("%s: failing: %s: %s%s", notice.entity, notice.type, notice.message, calls)
            case "reminder":
                what = f"{notice.failures} polls{skipped}, last {notice.type}: {notice.message}"
                logger.warning("%s: still failing after %s: %s", notice.entity, lasted, what)
            case _:
                logger.info(
                    "%s: recovered after %s and %d failed polls%s", notice.entity, lasted, notice.failures, skipped
                )


class Log:
    """Tells the log what is no outage of a device: the link, circuits, drops, faults. Once each, not once a poll."""

    def __init__(self, name: str, prefix: str) -> None:
        self._name = name
        self._prefix = prefix
        self._link_down_at: float | None = None
        self._link_reasons: set[str] = set()
        self._link_clash = False
        self._link_topic: str | None = None
        self._old_version_told = False
        self._refused: dict[str, tuple[int, float]] = {}
        self._circuits_open: set[str] = set()
        self._missed = 0
        self._missed_told_at = -math.inf
        self._commands_failed = 0
        self._commands_told_at = -math.inf
        self._dropped = 0
        self._drops_told_at = -math.inf

    def observe(self, event: Event) -> None:
        """Take one event."""
        match event:
            case ReadingTaken():
                return  # nearly every event there is
            case LinkUp():
                self._link_up(event)
            case LinkDown():
                self._link_down(event)
            case LinkSettled():
                self._link_clash = False
                self._link_down_at = None
                self._link_reasons.clear()
                logger.info("%s: the connection to the broker holds again", self._name)
            case CircuitMoved():
                self._circuit(event)
            case PollMissed():
                self._miss(event)
            case MessageDropped():
                self._drop(event)
            case MessageRefused():
                self._refusal(event)
            case FieldsLeftOut(entity=entity, fields=fields):
                logger.warning("%s: left out, NaN or infinite: %s", entity, clean(", ".join(fields)))
            case CommandDone():
                self._command(event)
            case SubscriptionFailed(reason=reason):
                logger.warning("%s; commands cannot arrive. Check the broker's access list.", reason)
            case AdapterReopened(adapter=adapter, how=how):
                logger.debug("%s was %s", adapter, how)
            case AdapterFailed():
                wait = human(round(event.retry_in, 1))
                logger.warning("%s cannot be opened: %s; tried again in %s", event.adapter, told(event.error), wait)
            case Held(entity=entity):
                logger.error(
                    "%s: held until it is released: leadsman release --prefix %s --device %s",
                    entity,
                    self._prefix,
                    entity,
                )
            case Released(entity=entity):
                logger.info("%s: released", entity)
            case PollDeferred(entity=entity, seconds=rest, reason=reason):
                why = f" ({reason})" if reason else ""
                logger.debug("%s: asked to be left alone for %s%s", entity, human(round(rest, 1)), why)
            case AttemptFailed():
                next_ = event.reason if event.delay is None else f"again in {event.delay:.1f} s"
                logger.debug("%s: call %d failed: %s (%s)", event.entity, event.attempt, told(event.error), next_)
            case StateFailed(file=file, error=error):
                logger.warning(
                    "%s cannot be read or written: %s; the app goes on, and remembers in memory only", file, told(error)
                )
            case StateWritten(file=file):
                logger.info("%s is written again", file)
            case AppFault():
                logger.error(
                    "%s: %s: %s", event.where, type(event.error).__name__, told(event.error), exc_info=event.error
                )

    def _link_up(self, event: LinkUp) -> None:
        if self._link_clash or self._link_topic is not None:
            return  # it may not hold; `LinkSettled` says when it does. Or it broke on a message, and that one was told
        lasted = "" if self._link_down_at is None else f" after {human(round(event.at - self._link_down_at, 1))}"
        logger.info("%s: connected to the broker with MQTT %s%s", self._name, event.protocol, lasted)
        if event.protocol != "5.0" and not self._old_version_told:
            self._old_version_told = True
            logger.info("MQTT 3.1.1 has no user properties: Delivery(taken_at='payload') puts the time into the JSON")
        self._link_down_at = None
        self._link_reasons.clear()

    def _link_down(self, event: LinkDown) -> None:
        if self._link_down_at is None:
            self._link_down_at = event.at
        self._link_clash = event.clash
        self._link_topic = event.topic
        if event.topic is not None:
            return
        if event.reason not in self._link_reasons and len(self._link_reasons) < MOST_REASONS:
            logger.warning("No connection to the broker: %s. Readings are kept; trying again.", clean(event.reason))
            self._link_reasons.add(event.reason)

    def _refusal(self, event: MessageRefused) -> None:
        count, told_at = self._refused.get(event.topic, (0, -math.inf))
        if event.at - told_at < REMIND:
            self._refused[event.topic] = count + 1, told_at
            return
        self._refused[event.topic] = count + 1, event.at
        times = f"; {count + 1} times so far" if count else ""
        logger.warning(
            "The broker refuses messages of %s: %s%s. They are kept, and tried again.",
            clean(event.topic),
            event.reason,
            times,
        )

    def _circuit(self, event: CircuitMoved) -> None:
        if event.state == "open" and event.entity not in self._circuits_open:
            self._circuits_open.add(event.entity)
            logger.warning(
                "%s: circuit open after %d failed polls; it is asked less often until it answers",
                event.entity,
                event.failures,
            )
        elif event.state == "closed" and event.entity in self._circuits_open:
            self._circuits_open.discard(event.entity)
            logger.info("%s: circuit closed", event.entity)

    def _command(self, event: CommandDone) -> None:
        if event.error is None:
            logger.debug("%s: command done in %.1f s", event.device, event.duration)
            return
        self._commands_failed += 1
        if event.at - self._commands_told_at >= TELL_AGAIN:
            error = f"{type(event.error).__name__}: {told(event.error)}"
            logger.warning(
                "%d commands failed so far, last for %s: %s", self._commands_failed, clean(event.device), error
            )
            self._commands_told_at = event.at

    def _miss(self, event: PollMissed) -> None:
        self._missed += event.polls
        if event.at - self._missed_told_at >= TELL_AGAIN:
            why = "a device is slower than its schedule, or the process slept"
            logger.warning("%d polls missed so far, last of %s: %s", self._missed, event.entity, why)
            self._missed_told_at = event.at

    def _drop(self, event: MessageDropped) -> None:
        self._dropped += event.messages
        if event.at - self._drops_told_at >= TELL_AGAIN:
            logger.warning("%d messages dropped so far, last of %s: %s", self._dropped, event.topic, event.reason)
            self._drops_told_at = event.at
