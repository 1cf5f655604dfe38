"""Any sequence of calls by any nodes, on every implementation, beside a model of its own."""

from contextlib import AsyncExitStack
from typing import NamedTuple

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule, run_state_machine_as_test
from tests.extensions.nodes.lease.conftest import NUMBERS
from tests.extensions.nodes.lease.implementations import IMPLEMENTATIONS, InMemory, members_of

from leadsman.extensions.nodes.lease.lease import Lease, Member, Terms
from leadsman_rigs.examples import examples

TTL = 30.0
"""Seconds. On real engines nothing ends while an example runs."""
NODES = ("a", "b", "c")
KEYS = ("k.0", "k.1", "k.2", "k.3")
nodes = st.sampled_from(NODES)
some_keys = st.lists(st.sampled_from(KEYS), unique=True)


class Kept(NamedTuple):
    lease: Lease
    until: float


class Leases(RuleBasedStateMachine):
    """`implementation` is set by the tests."""

    implementation = None

    def __init__(self):
        super().__init__()
        self.loop = self.implementation.loop()
        self.terms = Terms(f"machine-{next(NUMBERS)}", ttl=TTL, shards=4)
        self.stack = AsyncExitStack()
        self.runs = dict.fromkeys(NODES, 0)
        self.stores, self.members = {}, {}
        self.kept: dict[str, Kept] = {}
        self.alive: dict[str, float] = {}
        self.every_lease: list[Lease] = []
        for node in NODES:
            self.start(node)

    def teardown(self):
        self.run(self.stack.aclose())
        self.loop.close()

    def run(self, call):
        return self.loop.run_until_complete(call)

    def start(self, node):
        self.runs[node] += 1
        self.members[node] = Member(node, str(self.runs[node]), labels=[f"of {node}"])
        store = self.implementation.store(self.terms, self.members[node])
        self.stores[node] = self.run(self.stack.enter_async_context(store))
        self.alive[self.members[node].owner] = self.loop.time() + TTL

    def live(self, key):
        kept = self.kept.get(key)
        return kept.lease if kept is not None and self.loop.time() < kept.until else None

    @rule(node=nodes, keys=some_keys)
    def acquire(self, node, keys):
        owner = self.members[node].owner
        greatest = max((lease.token for lease in self.every_lease), default=0)
        expected_held = {key: lease for key in keys if (lease := self.live(key)) is not None and lease.owner != owner}

        granted, held = self.run(self.stores[node].acquire(keys))

        assert held == expected_held
        assert granted.keys() == set(keys) - held.keys()
        assert all(lease.token > greatest and lease.owner == owner for lease in granted.values())
        assert len({lease.token for lease in granted.values()}) == len(granted)
        self.every_lease += granted.values()
        self.kept.update({key: Kept(lease, self.loop.time() + TTL) for key, lease in granted.items()})

    @rule(node=nodes, data=st.data())
    def renew(self, node, data):
        leases = self.some_leases(data)
        owner = self.members[node].owner
        expected = {lease.key: lease for lease in leases if lease.owner == owner and self.live(lease.key) == lease}

        assert self.run(self.stores[node].renew(leases)) == expected

        self.kept.update({key: Kept(lease, self.loop.time() + TTL) for key, lease in expected.items()})
        self.alive[owner] = self.loop.time() + TTL

    @rule(node=nodes, data=st.data())
    def release(self, node, data):
        leases = self.some_leases(data)
        self.run(self.stores[node].release(leases))
        for lease in leases:
            if lease.owner == self.members[node].owner and self.live(lease.key) == lease:
                del self.kept[lease.key]

    @rule(key=st.sampled_from(KEYS))
    def delete_by_hand(self, key):
        self.run(self.implementation.delete(self.terms, key))
        self.kept.pop(key, None)

    @rule(node=nodes)
    def restart(self, node):
        self.start(node)

    @precondition(lambda self: not self.implementation.real)
    @rule(seconds=st.floats(0.0, 1.5 * TTL))
    def wait(self, seconds):
        async def wait():
            self.loop.block(seconds)

        self.run(wait())

    @invariant()
    def the_members_are_those_that_renewed(self):
        expected = {owner for owner, until in self.alive.items() if self.loop.time() < until}
        members = self.run(members_of(self.stores["a"]))
        assert {member.owner for member in members} == expected
        assert all(member.labels == {f"of {member.node}"} for member in members)

    def some_leases(self, data):
        return data.draw(st.lists(st.sampled_from(self.every_lease), unique=True)) if self.every_lease else []


@pytest.mark.slow
def test_any_sequence_of_calls_in_virtual_time_has_the_answers_of_the_model():
    play(InMemory(), number=40, steps=30)


@pytest.mark.system
@pytest.mark.parametrize("name", [name for name in IMPLEMENTATIONS if name != "memory"])
def test_any_sequence_of_calls_has_the_answers_of_the_model(name):
    with IMPLEMENTATIONS[name]() as implementation:
        play(implementation, number=6, steps=15)


def play(implementation, number, steps):
    machine = type("Machine", (Leases,), {"implementation": implementation})
    chosen = settings(
        max_examples=examples(number), stateful_step_count=steps, deadline=None, suppress_health_check=list(HealthCheck)
    )
    run_state_machine_as_test(machine, settings=chosen)
