"""Which readings arrive after an outage, in virtual time, from memory and from disk."""

import asyncio

import pytest

from leadsman import App, Delivery, OnChange

TOPIC_INVALID = 0x90
OUTAGE = (10.5, 40.5)


def app_of(kind, values, **options):
    """An app whose device has the next of these values each second, polled or as a source."""
    app, values = App("app"), iter(values)

    async def poll():
        return {"n": next(values)}

    async def source():
        while True:
            yield {"n": next(values)}
            await asyncio.sleep(1)

    if kind == "telemetry":
        app.add_telemetry("d", poll, interval=1, **options)
    else:
        app.add_source("d", source, **options)
    return app


@pytest.fixture(params=["telemetry", "source"])
def kind(request):
    return request.param


@pytest.fixture(params=["memory", "acked-or-durable"])
def durability(request):
    return {"outbox.durability": request.param}


@pytest.fixture
def after_an_outage(harness, kind, durability, tmp_path):
    """An app that is without its broker for half a minute, ten seconds after that."""

    def run(delivery):
        app = app_of(kind, range(1000), delivery=delivery)
        running = harness(app, settings=durability, state_directory=tmp_path / "state")
        running.at(OUTAGE[0], running.broker.stop)
        running.at(OUTAGE[1], running.broker.start)
        running.run(50.5)
        return running

    return run


def flags(running, topic):
    return {message.json["n"]: message.retain for message in running.broker.messages(topic)}


def test_all_readings_of_an_outage_arrive_in_order_and_the_newest_is_retained(after_an_outage):
    running = after_an_outage(Delivery())

    sent = flags(running, "app/d/state")
    assert list(sent) == list(range(51))
    late = [number for number, retained in sent.items() if not retained]
    assert late == list(range(late[0], late[-1] + 1))
    assert 11 <= late[0] <= 12
    assert 39 <= late[-1] <= 42


def test_of_the_readings_of_an_outage_the_newest_arrives_where_that_is_asked_for(after_an_outage):
    running = after_an_outage(Delivery(keep="newest"))

    sent = flags(running, "app/d/state")
    assert set(range(12, 40)).isdisjoint(sent)
    assert {*range(10), *range(43, 51)} <= set(sent)
    assert list(sent) == sorted(sent)
    assert set(sent.values()) == {True}


def test_the_history_has_what_did_not_expire_and_the_state_the_newest(after_an_outage):
    running = after_an_outage(Delivery(history="10s"))

    history, state = flags(running, "app/d/history"), flags(running, "app/d/state")
    assert set(history.values()) == {False}
    assert set(range(13, 29)).isdisjoint(history)
    assert {*range(10), *range(33, 50)} <= set(history)
    assert set(range(12, 40)).isdisjoint(state)
    assert "app/d/history" not in running.broker.retained


def test_a_publish_rule_does_not_compare_with_what_the_broker_refused_for_good(harness, kind):
    values = [20] * 5 + [25] * 10 + [20] * 100
    running = harness(app_of(kind, values, publish=OnChange()))
    running.at(4.5, lambda: running.broker.refusals.update({"app/d/state": TOPIC_INVALID}))
    running.at(9.5, running.broker.refusals.clear)

    running.run(30)

    assert [state["n"] for state in running.states("d")] == [20, 25, 20]
