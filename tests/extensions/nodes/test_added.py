"""What a node adds to the documents of its app."""

from types import SimpleNamespace

from leadsman.extensions.nodes.added import measures
from leadsman.extensions.nodes.brief import STATES


def test_nodes_are_measured_by_what_they_are_with_a_series_for_each_state():
    states = [{"state": "active"}, {"state": "standby"}, {"state": "standby"}]
    ((family, read),) = measures(SimpleNamespace(briefs=lambda: states)).app.items()

    assert (family.name, family.labels) == ("leadsman_nodes", ("state",))
    assert read() == {state: {"active": 1, "standby": 2}.get(state, 0) for state in STATES}
