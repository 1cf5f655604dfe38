"""Which node of an app may act, as a machine.

The broker is the arbiter: it allows one session for a client id, so a node that connects with the id of the app ends
the session of the node that had it, which cannot publish any more. The lease shows when to do so, and when a node that
hears nothing must stop on its own.

=============  =======================================================================
state          what ends it
=============  =======================================================================
standby        the lease is gone and the status is offline; or the lease has not been
               renewed for its TTL, and a jitter unless the status is offline; or the
               lease is our own, as after an outage of the broker: taking over
taking over    our lease comes back from the broker: active. Another node's comes
               first, or none of ours within the TTL: fenced
active         our lease has not come back for a TTL since it was sent; another node's
               with a higher token came; the broker gave our session away: fenced
fenced         the app has stopped: standby
released       the end, if the process stops; else the app has stopped: standby
=============  =======================================================================

A node that drains stands by and takes nothing over until it is asked to take part again. If it is the owner, the app is
stopped as by SIGTERM, so that the lease is given back and another node takes over at once.

A node observes the lease on a connection with an id of its own, in every state. It counts silence only while it
observes: after an outage of the broker it waits for a whole TTL from then on. So no clock but its own matters, and that
one only forward: `Moment.now` is seconds of a clock that goes on while the host sleeps.

Two nodes never act at the same time: a lease holds for its TTL from the moment when it was *sent*, and the others count
from the moment when they *heard* it, which is later.
"""

import math
from typing import NamedTuple

from leadsman.extensions.nodes.standby.renewal import MAX_TOKEN, Renewal

RENEWALS = 3
"""Renewals in a TTL: two may be lost."""
JITTER = (0.05, 0.25)
"""The range of the jitter, in TTL: two nodes that stand by seldom take over together, and a takeover after silence is
complete within 1.5 TTL."""


MAX_WAIT_SECONDS, MAX_WAIT_TTLS = 60.0, 4.0
"""Seconds, and TTLs, of which the longer is waited for a silent owner at most, whatever TTL its lease names. The
nodes of an app have one TTL, but anybody may write a lease."""


class Moment(NamedTuple):
    """When a step is taken."""

    now: float
    """Seconds of the node's own clock, which never goes back."""
    draw: float = 0.0
    """Uniform in [0, 1)."""
    stamp: int = 0
    """Milliseconds since 1970. A token is at least that, so that it grows too if the broker has lost the lease. Nothing
    else depends on it."""


class NodeRule(NamedTuple):
    """The constants of a node."""

    owner: str
    """The name of this node."""
    ttl: float
    """Seconds."""


class LeaseView(NamedTuple):
    """The lease as the node has heard it from the broker."""

    since: float | None = None
    """Since when it observes without a break; None while it does not."""
    lease: Renewal | None = None
    """The latest lease; None if it is gone."""
    heard: float = -math.inf
    """When the lease changed last."""
    online: bool | None = None
    """Whether the status of the app shows it as online; None if there is none."""
    top: int = 0
    """The highest token so far."""


class Standby(NamedTuple):
    """Another node acts, or none."""

    not_before: float = -math.inf
    """When it may take over at the earliest, unless it hears of another owner."""
    jitter: float = 0.0
    """Seconds."""


class TakingOver(NamedTuple):
    """It connects with the id of the app."""

    token: int
    since: float
    renew_at: float = math.inf
    connected: bool = False


class Active(NamedTuple):
    """It acts."""

    token: int
    since: float
    until: float
    """When it must stop, unless a later renewal comes back."""
    renew_at: float
    connected: bool = True


class Fenced(NamedTuple):
    """It must not act, and the app is being stopped."""

    reason: str
    rest: bool
    """Whether the next takeover waits for a TTL."""


class Released(NamedTuple):
    """It has given the lease back, or never had it: the process ends, or the node drains."""


State = Standby | TakingOver | Active | Fenced | Released


class NodeMachine(NamedTuple):
    """One node."""

    rule: NodeRule
    view: LeaseView
    state: State
    draining: bool = False
    """Whether a person wants it to own nothing."""


class Observing(NamedTuple):
    """The node now hears the lease and the status, and has heard what the broker retains."""


class Blind(NamedTuple):
    """The observing connection was lost."""


class LeaseHeard(NamedTuple):
    """A message at the topic of the lease; None: it is gone."""

    lease: Renewal | None


class StatusHeard(NamedTuple):
    """A message at the topic of the status."""

    online: bool | None


class Connected(NamedTuple):
    """The broker accepted us with the id of the app."""


class Disconnected(NamedTuple):
    """That connection was lost."""

    taken_over: bool = False
    """Whether the reason code was that another client has our session."""


class AppEnded(NamedTuple):
    """The app has stopped after a fence."""


class Leave(NamedTuple):
    """The process ends."""


class Drain(NamedTuple):
    """A person wants the node to own nothing, or to take part again."""

    draining: bool


class Tick(NamedTuple):
    """Time has passed."""


Event = Observing | Blind | LeaseHeard | StatusHeard | Connected | Disconnected | AppEnded | Leave | Drain | Tick


class Begin(NamedTuple):
    """Start the app, and connect with its id."""

    token: int


class Renew(NamedTuple):
    """Publish this lease on the connection with the id of the app."""

    lease: Renewal


class Stop(NamedTuple):
    """Stop the app at once."""

    reason: str


class Release(NamedTuple):
    """Remove the lease."""


Action = Begin | Renew | Stop | Release
Step = tuple[NodeMachine, tuple[Action, ...]]


def first(rule: NodeRule, moment: Moment) -> NodeMachine:
    """A node that has just started, and has heard nothing."""
    return NodeMachine(rule, LeaseView(), _standing_by(rule, moment, rest=False))


def may_act(node: NodeMachine, now: float) -> bool:
    """Whether the node may poll, and answer commands."""
    return isinstance(node.state, Active) and now < node.state.until


def may_connect(node: NodeMachine, now: float) -> bool:
    """Whether the node may use the id of the app."""
    if isinstance(node.state, TakingOver):
        return now < node.state.since + node.rule.ttl
    return may_act(node, now)


def next_at(node: NodeMachine) -> float:
    """When time alone changes something; infinity if it does not."""
    match node.state:
        case Standby() as state:
            return math.inf if node.draining else _take_over_at(node, state)
        case TakingOver() as state:
            return min(state.since + node.rule.ttl, state.renew_at if state.connected else math.inf)
        case Active() as state:
            return min(state.until, state.renew_at if state.connected else math.inf)
    return math.inf


def step(node: NodeMachine, event: Event, moment: Moment) -> Step:
    """The node after an event, and the things that it has to do."""
    before, node = node.view.lease, node._replace(view=_observe(node.view, event, moment.now))
    if isinstance(event, LeaseHeard) and event.lease is not None and event.lease == before:
        event = Tick()  # the broker has sent once more what it retains
    match node.state, event:
        case _, Drain(draining=draining) if draining != node.draining:
            return _drain(node._replace(draining=draining), moment)
        case ((Released() | TakingOver() | Active()), AppEnded()):
            return node._replace(state=_standing_by(node.rule, moment, rest=False)), ()
        case Standby() | TakingOver(), Leave():
            return node._replace(state=Released()), ()
        case Active() as state, Leave():
            held = state.connected and moment.now < state.until
            return node._replace(state=Released()), (Release(),) if held else ()
        case Fenced(), Leave():
            return node._replace(state=Released()), ()
        case Fenced(rest=rest), AppEnded():
            return node._replace(state=_standing_by(node.rule, moment, rest=rest)), ()
        case Standby() as standby, _:
            return _standby(node, standby, event, moment)
        case (TakingOver() | Active()) as owner, _:
            return _owner(node, owner, event, moment)
    return node, ()


def _drain(node: NodeMachine, moment: Moment) -> Step:
    """The owner stops the app, which gives the lease back; a node that stands by looks when it may take over. A drain
    that is undone while the app stops counts from then on."""
    match node.state:
        case TakingOver() | Active() if node.draining:
            return node, (Stop("it was asked to hand over"),)
        case Standby() as standby:
            return _standby(node, standby, Tick(), moment)
    return node, ()


def _observe(view: LeaseView, event: Event, now: float) -> LeaseView:
    match event:
        case Observing():
            return view._replace(since=now)
        case Blind():
            return view._replace(since=None, lease=None, online=None)
        case StatusHeard(online=online):
            return view._replace(online=online)
        case LeaseHeard(lease=lease) if lease != view.lease:
            top = view.top if lease is None else max(view.top, lease.token)
            return view._replace(lease=lease, heard=now, top=top)
    return view


def _standing_by(rule: NodeRule, moment: Moment, *, rest: bool) -> Standby:
    low, high = JITTER
    jitter = rule.ttl * (low + (high - low) * moment.draw)
    return Standby(moment.now + rule.ttl + jitter if rest else moment.now, jitter)


def _take_over_at(node: NodeMachine, state: Standby) -> float:
    rule, view = node.rule, node.view
    if view.since is None:
        return math.inf
    earliest, lease = max(view.since, state.not_before), view.lease
    if (lease is None and view.online is False) or (lease is not None and lease.owner == rule.owner):
        return earliest
    ttl = 0.0 if lease is None else min(lease.ttl, max(MAX_WAIT_SECONDS, MAX_WAIT_TTLS * rule.ttl))
    silent = max(view.since, view.heard) + max(rule.ttl, ttl)
    return max(earliest, silent + (0.0 if view.online is False else state.jitter))


def _standby(node: NodeMachine, state: Standby, event: Event, moment: Moment) -> Step:
    lease = node.view.lease
    if isinstance(event, LeaseHeard) and lease is not None and lease.owner != node.rule.owner:
        state = state._replace(not_before=moment.now)
        node = node._replace(state=state)
    if node.draining or moment.now < _take_over_at(node, state):
        return node, ()
    token = max(node.view.top + 1, moment.stamp)
    if token > MAX_TOKEN:  # another client has written one that nothing can follow
        token = moment.stamp
    return node._replace(state=TakingOver(token, moment.now)), (Begin(token),)


def _owner(node: NodeMachine, state: TakingOver | Active, event: Event, moment: Moment) -> Step:
    rule, now = node.rule, moment.now
    match event:
        case Disconnected(taken_over=True):
            return _fence(node, "another client took over the session", rest=True)
        case Disconnected():
            return node._replace(state=state._replace(connected=False)), ()
        case Connected():
            return _renew(node._replace(state=state._replace(connected=True)), now)
        case LeaseHeard(lease=lease) if lease is not None and lease.owner == rule.owner:
            return _confirm(node, state, lease, now)
        case LeaseHeard(lease=lease) if lease is not None:
            if _beats(lease, state.token, rule.owner) or (isinstance(state, TakingOver) and not state.connected):
                return _fence(node, f"{lease.owner} has taken over", rest=False)
        case LeaseHeard() if state.connected:
            return _renew(node, now)  # a client has deleted it
    if isinstance(state, Active) and now >= state.until:
        return _fence(node, f"the broker has confirmed no lease for {rule.ttl:g} s", rest=False)
    if isinstance(state, TakingOver) and now >= state.since + rule.ttl:
        return _fence(node, f"the broker has not returned the lease within {rule.ttl:g} s", rest=True)
    if state.connected and now >= state.renew_at:
        return _renew(node, now)
    return node, ()


def _beats(lease: Renewal, token: int, owner: str) -> bool:
    """Whether another node's lease counts more than ours. Of two that took over together, the name decides."""
    return (lease.token, lease.owner) > (token, owner)


def _confirm(node: NodeMachine, state: TakingOver | Active, lease: Renewal, now: float) -> Step:
    """Our own lease came back."""
    until = lease.sent + node.rule.ttl
    if lease.token != state.token or lease.sent > now or until <= now:
        return node, ()
    if isinstance(state, Active):
        return node._replace(state=state._replace(until=max(until, state.until))), ()
    active = Active(state.token, now, until, state.renew_at, state.connected)
    return node._replace(state=active), ()


def _renew(node: NodeMachine, now: float) -> Step:
    rule, state = node.rule, node.state
    if not isinstance(state, TakingOver | Active) or not may_connect(node, now):
        return node, ()
    state = state._replace(renew_at=now + rule.ttl / RENEWALS)
    return node._replace(state=state), (Renew(Renewal(rule.owner, state.token, rule.ttl, now)),)


def _fence(node: NodeMachine, reason: str, *, rest: bool) -> Step:
    return node._replace(state=Fenced(reason, rest)), (Stop(reason),)
