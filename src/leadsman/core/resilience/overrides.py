"""Policies that temporarily override a handler's own: for the failures of one block in a handler, or for whole
handlers.

An error has left its block before anything decides about it, so the block attaches its policy to the error. The
policies of the error are asked first, the innermost one first, then those of the app, and the handler's own last. A
policy that answers ``filtered`` passes the failure on to the next one.

Each policy has its own state, over the whole outage. Equal policies share one state, so a handler may write a policy
where it uses it.
"""

import asyncio
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from contextvars import Context, ContextVar, copy_context

from leadsman.core.resilience.backoff import Draw
from leadsman.core.resilience.failure import Failure
from leadsman.core.resilience.policy import GiveUp, Policy, State, Verdict

PolicyOverride = list[tuple[frozenset[str] | None, Policy]]
"""Policies that temporarily override the handlers' own; the last one is asked first. Each applies to some names, or to
all."""
IN_HANDLER: ContextVar[bool] = ContextVar("leadsman_in_handler", default=False)
"""Whether a poll or a source called the code that runs."""


def handler_context() -> Context:
    """A copy of the current context in which the code counts as that of a handler. Set once per timer heap, source or
    request, not once per call: setting a context variable costs a fifth of a call."""
    context = copy_context()
    context.run(IN_HANDLER.set, True)
    return context


States = tuple[tuple[Policy, State], ...]
"""The states of policies; the policy that was asked last comes first."""
MAX_STATES = 8
"""The states that are kept in one outage. A policy that is made with other numbers each time would add one each
time."""
_MARK = "__leadsman_policies__"


@contextmanager
def block(policy: Policy) -> Iterator[None]:
    """Within the block, `policy` decides about failures: it is attached to an error that leaves the block."""
    try:
        yield
    except BaseException as error:
        error.__dict__[_MARK] = (*error.__dict__.get(_MARK, ()), policy)
        raise


def take(error: BaseException) -> tuple[Policy, ...]:
    """Detach the policies from an error, the innermost one first. The same error may be raised again elsewhere.

    An exception group has those that all its errors have. A timeout has those of the cancellation that it came of.
    """
    policies: tuple[Policy, ...] = error.__dict__.pop(_MARK, ())
    if isinstance(error, BaseExceptionGroup):
        first, *others = (take(leaf) for leaf in error.exceptions)
        return tuple(each for each in first if all(each in other for other in others)) + policies
    if isinstance(error, TimeoutError) and isinstance(error.__cause__, asyncio.CancelledError):
        return take(error.__cause__) + policies
    return policies


def step(
    policies: Iterable[Policy], own: Policy, state: State, states: States, failure: Failure, draw: Draw
) -> tuple[State, States, Verdict]:
    """Ask policies one after the other, until the answer is not ``filtered``. The handler's own policy comes last.

    Args:
        policies: the policies that override the handler's own.
        own: the handler's own policy.
        state: the state of `own`.
        states: the states of `policies`.
        failure: the failed call.
        draw: as `Policy.step` takes it.

    Returns:
        `state` and `states` after it, and the verdict.
    """
    for each in policies:
        before = next((kept for policy, kept in states if policy == each), None)
        after, verdict = each.step(each.start() if before is None else before, failure, draw)
        states = ((each, after), *(kept for kept in states if kept[0] != each))[:MAX_STATES]
        if not (isinstance(verdict, GiveUp) and verdict.reason == "filtered"):
            return state, states, verdict
    state, verdict = own.step(state, failure, draw)
    return state, states, verdict
