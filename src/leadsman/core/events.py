"""Events, as plain records. `leadsman.core.event_bus` carries them to their observers.

All carry `at` (monotonic seconds) and `wall` (epoch seconds). Code that emits an event leaves both out, and the bus
stamps it. Only `ReadingTaken` brings the time of its reading, and it is published with that.
"""

from typing import Literal, NamedTuple

UNSTAMPED = 0.0
"""The time of an event that has not been emitted. Nothing of ours happened in 1970."""


class ReadingTaken(NamedTuple):
    """A poll succeeded. `duration` in seconds, retries included. `empty`: its handler returned None, so the device
    answered without a reading."""

    entity: str
    at: float
    wall: float
    duration: float
    empty: bool = False


class AttemptFailed(NamedTuple):
    """One call failed. `delay` seconds until the retry; None: no retry, because of `reason`.

    `cycle` counts the failed polls of the outage before this one; `since` is when the first call of the outage failed,
    monotonic seconds; `outage` is when that call began, epoch seconds; `circuit` is the breaker's state.
    """

    entity: str
    error: BaseException
    attempt: int
    delay: float | None
    reason: str
    cycle: int
    since: float
    outage: float
    circuit: str
    requested: bool = False
    """Whether the handler itself requested the retry; that is not a failure."""
    at: float = UNSTAMPED
    wall: float = UNSTAMPED
    first: float = 0.0
    """Seconds that the first failed call of the outage took."""

    @property
    def began(self) -> float:
        """When the outage began: with the first call that failed, monotonic seconds."""
        return self.since - self.first


LONG_PAUSE_SECONDS = 60.0
"""Seconds of failed calls after which an outage is reported while its poll is still retrying. Otherwise a poll that
retries until the next one could hide an outage of hours."""


def long_failing(event: AttemptFailed) -> bool:
    """Whether a call is being retried that has failed long enough to be reported."""
    return event.delay is not None and not event.requested and event.at - event.since >= LONG_PAUSE_SECONDS


def failing_early(event: AttemptFailed, *, never_read: bool) -> bool:
    """Whether a failed call is reported while its poll is still retrying: because it has failed for long, or the
    device was never read.

    A person who sets up a device waits for its first reading: the device must not look healthy until its first poll
    has given up.
    """
    return long_failing(event) or (never_read and event.delay is not None and not event.requested)


class PollFailed(NamedTuple):
    """A poll failed for good, after `attempts` calls. It began `duration` seconds before."""

    entity: str
    error: BaseException
    attempts: int
    at: float = UNSTAMPED
    wall: float = UNSTAMPED
    duration: float = 0.0
    due: float | None = None
    """When it came due by the schedule, monotonic seconds; None if it was requested, or there is no schedule."""

    @property
    def began(self) -> float:
        """When it began, monotonic seconds: so did an outage of which no call failed before."""
        return self.at - self.duration

    @property
    def outage(self) -> float:
        """The same, epoch seconds."""
        return self.wall - self.duration


class PollSkipped(NamedTuple):
    """A poll was due, but was skipped because the circuit is open, or a person has isolated it."""

    entity: str
    at: float = UNSTAMPED
    wall: float = UNSTAMPED
    isolated: bool = False


class PollDeferred(NamedTuple):
    """The device asked for a pause of `seconds`, because of `reason`: there is no poll before its end."""

    entity: str
    seconds: float
    reason: str | None
    at: float = UNSTAMPED
    wall: float = UNSTAMPED
    due: float | None = None
    """See `PollFailed`."""


Unread = Literal["held", "missed", "late", "stopped", "starting", "deferred", "circuit_open"]
"""Why a poll gives no reading, and has not failed: the device is held; an earlier poll still runs; a timer rang late;
the app stops, or does not poll yet; the device asked for a pause or was marked as unavailable; a person isolated its
circuit."""


class PollWithoutReading(NamedTuple):
    """`polls` polls of the schedule, the first of which came due at `due`, monotonic seconds, gave no reading, and no
    other event marks it at once. They did not begin, or ended without an error. Only observers that name it receive it,
    since an app that is late has one for each reading."""

    entity: str
    why: Unread
    due: float
    polls: int = 1
    at: float = UNSTAMPED
    wall: float = UNSTAMPED


class DeviceLeft(NamedTuple):
    """The device was marked as unavailable until its next reading, because of `reason`."""

    entity: str
    reason: str
    at: float = UNSTAMPED
    wall: float = UNSTAMPED


class DeviceHeld(NamedTuple):
    """The handler is not polled again until a person releases it: a poll failed for good, or a person asked for it.
    `by` names the person, as far as known; it is empty after a failure."""

    entity: str
    by: str = ""
    at: float = UNSTAMPED
    wall: float = UNSTAMPED


class DeviceReleased(NamedTuple):
    """A person released a held handler. `by` names the person, as far as known."""

    entity: str
    by: str = ""
    at: float = UNSTAMPED
    wall: float = UNSTAMPED


class PollMissed(NamedTuple):
    """`polls` polls were due while an earlier one was still running, or while the process slept. They are not made
    up for. A device whose interval is shorter than a second has one such event each second at most, with all that
    were missed since the one before."""

    entity: str
    polls: int
    at: float = UNSTAMPED
    wall: float = UNSTAMPED
    cause: str = ""
    """Why the last of them was missed; empty if a timer rang late."""


class CircuitMoved(NamedTuple):
    """The breaker of an entity is now ``closed``, ``open``, ``half_open``, ``isolated`` or ``disabled``; `failures`
    cycles failed in a row."""

    entity: str
    state: str
    failures: int
    at: float = UNSTAMPED
    wall: float = UNSTAMPED
    by_hand: bool = False
    """Whether a person moved it, and no outcome of a poll."""


class CircuitRequested(NamedTuple):
    """A person asked to ``isolate``, ``close`` or ``disable`` the circuit of an entity. `by` names the person,
    as far as known."""

    entity: str
    action: str
    by: str
    at: float = UNSTAMPED
    wall: float = UNSTAMPED


class FieldsLeftOut(NamedTuple):
    """Fields of a reading were NaN or infinite and were left out. Emitted once, until a reading is complete again."""

    entity: str
    fields: tuple[str, ...]
    at: float = UNSTAMPED
    wall: float = UNSTAMPED


class CommandDone(NamedTuple):
    """A command for a device ended or was refused, after `duration` seconds. `error` is why it failed."""

    device: str
    duration: float
    error: BaseException | None
    at: float = UNSTAMPED
    wall: float = UNSTAMPED


class LinkUp(NamedTuple):
    """The broker accepted the connection. `protocol` is ``"5.0"`` or ``"3.1.1"``, and `client` the library that speaks
    it. `broker` is its address, if the app has several. `will_refused`: that it has no will, and why."""

    session: int
    protocol: str
    client: str
    broker: str | None = None
    will_refused: str | None = None
    at: float = UNSTAMPED
    wall: float = UNSTAMPED


class LinkDown(NamedTuple):
    """The connection ended, or could not be made. `retry_in` is the seconds until the next attempt.
    While a host refuses at once, as nothing listens there, the first attempt only is an event.

    `clash`: another client uses our client id. `topic`: the broker closed the connection on a message of this topic.
    `broker`: the address of the broker that is tried next, if the app has several. `version`: the version of MQTT that
    is tried next, where the broker may only be an old one.
    """

    reason: str
    retry_in: float
    clash: bool = False
    topic: str | None = None
    broker: str | None = None
    version: str | None = None
    at: float = UNSTAMPED
    wall: float = UNSTAMPED


class LinkSettled(NamedTuple):
    """The connection is stable, after several that ended within seconds."""

    at: float = UNSTAMPED
    wall: float = UNSTAMPED


class MessageRepeated(NamedTuple):
    """A message came again, since the broker lacked its acknowledgement. It is not handled twice."""

    topic: str
    at: float = UNSTAMPED
    wall: float = UNSTAMPED


class PrefixShared(NamedTuple):
    """Another app publishes below our prefix: `reason` names it, and has what to do. None: none does any more."""

    reason: str | None
    at: float = UNSTAMPED
    wall: float = UNSTAMPED


class LinkLimited(NamedTuple):
    """Readings wait because the broker allows only `allowed` unacknowledged messages, its Receive Maximum. The newest
    readings go first from now on."""

    allowed: int
    at: float = UNSTAMPED
    wall: float = UNSTAMPED


class MessageDropped(NamedTuple):
    """`messages` messages of `topic` will never be delivered, because of `reason`."""

    topic: str
    reason: str
    messages: int
    at: float = UNSTAMPED
    wall: float = UNSTAMPED
    cause: str = "refused"
    """See `leadsman.core.mqtt.outbox.Cause`."""
    is_answer: bool = False
    """Whether they are answers to requests, whose topics others choose."""


class MessageRefused(NamedTuple):
    """The broker refused a message with a reason code that may be temporary. The message is kept, and its topic
    pauses for `retry_in` seconds."""

    topic: str
    reason: str
    retry_in: float
    at: float = UNSTAMPED
    wall: float = UNSTAMPED


class SubscriptionFailed(NamedTuple):
    """The broker refused a subscription, so messages to it cannot arrive."""

    topic_filter: str
    reason: str
    at: float = UNSTAMPED
    wall: float = UNSTAMPED


class MessageFailed(NamedTuple):
    """The handler of a subscription raised an exception at a message of another program."""

    topic_filter: str
    error: BaseException
    at: float = UNSTAMPED
    wall: float = UNSTAMPED


class AdapterFailed(NamedTuple):
    """An adapter could not be opened. The next attempt follows in `retry_in` seconds."""

    adapter: str
    error: BaseException
    retry_in: float
    at: float = UNSTAMPED
    wall: float = UNSTAMPED


class AdapterReopened(NamedTuple):
    """An adapter was closed and opened again. `how` is ``reopened``, or ``reset`` if its client was replaced too."""

    adapter: str
    how: str
    at: float = UNSTAMPED
    wall: float = UNSTAMPED


class StateFailed(NamedTuple):
    """A file of the app's state could not be read or written, because of `error`. Emitted at the first failure
    only. Log, error topic, heartbeat and introspection report it, so the emitter does not log it."""

    file: str
    error: BaseException
    at: float = UNSTAMPED
    wall: float = UNSTAMPED


class StateWritten(NamedTuple):
    """A file of the app's state was written again, after `StateFailed`."""

    file: str
    at: float = UNSTAMPED
    wall: float = UNSTAMPED


class AppFault(NamedTuple):
    """The app itself is at fault: an observer, a strategy or a part of leadsman raised an exception."""

    where: str
    error: BaseException
    at: float = UNSTAMPED
    wall: float = UNSTAMPED


Event = (
    ReadingTaken
    | AttemptFailed
    | PollFailed
    | PollSkipped
    | PollDeferred
    | PollWithoutReading
    | DeviceLeft
    | DeviceHeld
    | DeviceReleased
    | PollMissed
    | CircuitMoved
    | CircuitRequested
    | FieldsLeftOut
    | CommandDone
    | LinkUp
    | LinkDown
    | LinkSettled
    | MessageRepeated
    | PrefixShared
    | LinkLimited
    | MessageDropped
    | MessageRefused
    | SubscriptionFailed
    | MessageFailed
    | AdapterFailed
    | AdapterReopened
    | StateFailed
    | StateWritten
    | AppFault
)
