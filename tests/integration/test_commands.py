import asyncio
import json
from typing import Literal

import pytest
from pydantic import BaseModel, Field, field_validator
from tests.core.mqtt.test_outbox_steps import Steps

from leadsman import App, CircuitBreaker, OnChange
from leadsman.errors import PayloadError
from leadsman.testing import Scripted, fail

READING = {"t": 21.5}


class Target(BaseModel):
    degrees: float = Field(ge=5, le=30)


def app_with(handler, **words):
    app = App("app")
    app.add_command("boiler", handler, **words)
    return app


def results(running, device="boiler"):
    return [delivered.json for delivered in running.broker.messages(f"app/{device}/set/result")]


def send(running, payload, **options):
    running.broker.send("app/boiler/set", payload, **options)
    running.run(1)


def test_a_command_gets_its_payload_and_what_it_returns_is_the_state(harness):
    made = []

    async def target(target: Target):
        made.append(target)
        return {"target": target.degrees}

    running = harness(app_with(target))
    running.run(1)

    send(running, {"degrees": 21})

    assert made == [Target(degrees=21)]
    assert running.states("boiler") == [{"target": 21.0}]
    assert [(each["status"], each["data"], each["error"]) for each in results(running)] == [
        ("ok", {"target": 21.0}, None)
    ]


@pytest.mark.parametrize(
    ("annotation", "payload", "got"),
    [
        (int, b"21", 21),
        (float, b"21.5", 21.5),
        (bool, b"on", True),
        (bool, b"OFF", False),
        (bool, b"false", False),
        (str, b"hello", "hello"),
        (str, b'"hello"', "hello"),
        (str, b"21", "21"),
        (Literal["on", "off"], b"on", "on"),
        (list[int], b"[1,2]", [1, 2]),
        (dict, b'{"a":1}', {"a": 1}),
    ],
)
def test_payloads_arrive_as_people_send_them(harness, annotation, payload, got):
    made = []

    async def handler(value): ...

    async def take(value):
        made.append(value)

    take.__annotations__["value"] = annotation
    running = harness(app_with(take))
    running.run(1)

    send(running, payload)

    assert made == [got]
    assert results(running)[0]["status"] == "ok"


@pytest.mark.parametrize(
    ("payload", "taken"),
    [(b"", None), (b"null", None), (b'{"degrees": 21}', 21), (b'{"degrees": 21, "transaction": 7}', 21)],
)
def test_an_empty_message_is_none_where_the_payload_may_be_none(harness, payload, taken):
    made = []

    async def target(target: Target | None):
        made.append(target and target.degrees)

    running = harness(app_with(target))
    running.run(1)
    send(running, payload)

    assert made == [taken]
    assert results(running)[0]["status"] == "ok"


@pytest.mark.parametrize(("kind", "taken"), [(str, ""), (str | None, ""), (int | None, None), (bool | None, None)])
def test_an_empty_message_is_an_empty_text_where_text_is_taken(harness, kind, taken):
    made = []

    async def target(target):
        made.append(target)

    target.__annotations__["target"] = kind
    running = harness(app_with(target))
    running.run(1)
    send(running, b"")

    assert made == [taken]


@pytest.mark.parametrize(
    ("payload", "told"),
    [
        (b"{", "broken JSON"),
        (b'{"degrees": 21', "broken JSON"),
        (b'{"degrees": NaN}', "broken JSON"),
        (b'{"degrees": "warm"}', "degrees: Input should be a valid number"),
        (b'{"degrees": 300}', "degrees: Input should be less than or equal to 30"),
        (b'{"degree": 21}', "degrees: Field required"),
        (b"21", "send a JSON object"),
        (b"on", "send a JSON object"),
        (b"", "the message is empty: send a JSON object"),
        (b"\xff\xfe", "not UTF-8"),
        (b'{"degrees": ' + b"[" * 30 + b"]" * 30 + b"}", "nested deeper"),
        (b"[" * 60_000, "nested deeper"),
        (b'{"degrees": 1e999}', "an infinite number"),
        (b'{"degrees": 21, "transaction": 1e999}', "an infinite number"),
        (b'{"degrees": 21, "transaction": "\\ud800"}', "half a surrogate pair"),
        (b" " * 70_000, "are allowed"),
        (b'"' + b"\x1b[31m" * 3 + b'"', "broken JSON"),
    ],
)
def test_what_is_wrong_with_a_payload_is_told_and_the_handler_not_called(harness, payload, told):
    made = []

    async def target(target: Target):
        made.append(target)

    running = harness(app_with(target))
    running.run(1)

    send(running, payload)

    assert made == []
    (result,) = results(running)
    assert result["status"] == "error"
    assert told in result["error"]
    assert "PayloadError" not in result["error"]
    assert result["error"].isprintable()
    send(running, {"degrees": 21})
    assert len(made) == 1


@pytest.mark.parametrize("payload", [b"nan", b'"NaN"', b"-inf", b'"Infinity"', b"1e999"])
def test_a_number_that_is_none_is_refused_in_every_spelling(harness, payload):
    made = []

    async def level(value: float):
        made.append(value)

    running = harness(app_with(level))
    running.run(1)

    send(running, payload)

    assert made == []
    assert "infinite number" in results(running)[0]["error"]


def test_a_validator_that_raises_something_of_its_own_refuses_the_payload(harness):
    class Odd(BaseModel):
        zone: str

        @field_validator("zone")
        @classmethod
        def known(cls, zone):
            return {"a": "b"}[zone]

    async def handler(odd: Odd): ...

    handler.__annotations__["odd"] = Odd
    running = harness(app_with(handler))
    running.run(1)

    send(running, {"zone": "x", "transaction": 1})

    assert results(running)[0]["error"] == "KeyError: 'x'"
    assert results(running)[0]["transaction"] == 1


def test_a_command_that_fails_is_told_and_never_made_again(harness):
    made = []

    async def target(target: Target):
        made.append(target)
        raise OSError("no answer")

    running = harness(app_with(target))
    running.run(1)

    send(running, {"degrees": 21, "transaction": 7})
    running.run("1h")

    assert len(made) == 1
    assert [(each["status"], each["error"], each["transaction"]) for each in results(running)] == [
        ("error", "OSError: no answer", 7)
    ]
    assert running.status()["devices"]["boiler"] == {"status": "ok"}


def test_a_handler_may_refuse_what_only_it_can_know(harness):
    async def target(target: Target):
        raise PayloadError("the boiler is in summer mode")

    running = harness(app_with(target))
    running.run(1)

    send(running, {"degrees": 21})

    assert results(running)[0]["error"] == "the boiler is in summer mode"


def test_a_retained_command_is_ignored(harness, caplog):
    made = []

    async def target(target: Target):
        made.append(target)

    running = harness(app_with(target))
    running.run(1)

    for _ in range(3):
        send(running, {"degrees": 21}, retain=True)

    assert made == results(running) == []
    assert caplog.text.count("retained") == 1


def test_retained_commands_of_many_devices_are_a_hundred_lines(harness, caplog):
    async def target(target: Target): ...

    running = harness(app_with(target))
    running.run(1)

    for number in range(105):
        for _ in range(2):
            running.broker.send(f"app/d{number}/set", b"1", retain=True)
    running.run(1)

    assert caplog.text.count("retained") == 100
    assert not any(each.topic.endswith("/set/result") for each in running.broker.log)


def test_commands_of_one_device_are_made_in_order_one_at_a_time_and_others_meanwhile(harness):
    log = []

    async def slow(number: int):
        log.append(("begin", number))
        await asyncio.sleep(2)
        log.append(("end", number))

    async def quick(number: int):
        log.append(("quick", number))

    app = app_with(slow)
    app.add_command("lamp", quick)
    running = harness(app)
    running.run(1)

    running.broker.send("app/boiler/set", b"1")
    running.broker.send("app/boiler/set", b"2")
    running.broker.send("app/lamp/set", b"3")
    running.run(10)

    assert log == [("begin", 1), ("quick", 3), ("end", 1), ("begin", 2), ("end", 2)]


def counters(running, device="boiler"):
    """What an app counts of the commands of a device."""
    running.broker.send("app/introspect", {"sections": ["devices"]}, response_topic="app/answers")
    running.run(0.1)
    return answer(running)[-1]["data"]["devices"][device]["runtime"]["commands"]


def test_commands_that_are_done_or_wait_are_counted(harness):
    async def slow(seconds: int):
        await asyncio.sleep(seconds)

    running = harness(app_with(slow))
    running.run(1)
    for seconds in (b"5", b"1"):
        running.broker.send("app/boiler/set", seconds)
    running.run(1)

    assert counters(running) == {"done": 0, "failed": 0, "refused": 0, "waiting": 1, "last_error": None}
    running.run(3)
    assert results(running) == []
    running.run(1)
    assert counters(running) == {"done": 1, "failed": 0, "refused": 0, "waiting": 0, "last_error": None}
    running.run(1)
    assert counters(running) == {"done": 2, "failed": 0, "refused": 0, "waiting": 0, "last_error": None}


@pytest.mark.parametrize(
    ("when_full", "made", "refused", "why"),
    [("reject", [0, 1, 2], [3, 4], "send it again"), ("drop-oldest", [0, 3, 4], [1, 2], "a newer command")],
)
def test_a_full_queue_refuses_by_its_policy_and_whoever_sent_it_is_told(harness, when_full, made, refused, why):
    done = []

    async def slow(command: dict):
        await asyncio.sleep(2)
        done.append(command["number"])

    running = harness(app_with(slow, queue=2, when_full=when_full))
    running.run(1)

    for number in range(5):
        running.broker.send("app/boiler/set", {"number": number, "transaction": number})
    running.run(20)

    assert done == made
    assert [each["transaction"] for each in results(running) if each["status"] == "error"] == refused
    assert all(why in each["error"] for each in results(running) if each["status"] == "error")


def test_a_command_that_hangs_ends_at_its_timeout_and_the_next_one_is_made(harness):
    made = []

    async def hang_once(number: int):
        made.append(number)
        if number == 1:
            await asyncio.sleep(3600)

    running = harness(app_with(hang_once, timeout="5s"))
    running.run(1)

    send(running, b"1")
    send(running, b"2")
    running.run(10)

    assert made == [1, 2]
    assert [each["status"] for each in results(running)] == ["error", "ok"]


def test_whoever_waits_for_an_answer_when_the_app_stops_gets_one(harness):
    made = []

    async def slow(number: int):
        made.append(number)
        await asyncio.sleep(10)

    running = harness(app_with(slow))
    running.run(1)
    for number in (1, 2, 3):
        running.broker.send("app/boiler/set", {"number": number}, response_topic="app/answers")
        running.broker.send("app/boiler/set", str(number), response_topic="app/answers")
    running.run(1)
    running.stop()

    told = [each.json["error"] for each in running.broker.messages("app/answers")]
    assert made == [1]
    assert [error.split(": ")[1][:40] for error in told if error.startswith("DeviceUnavailable")] == [
        "the app stopped before the command ended",
        "the app stopped before the command was e",
        "the app stopped before the command was e",
    ]


def test_a_command_that_swallows_its_cancellation_is_answered_and_the_next_one_waits_for_its_end(harness):
    over = asyncio.Event()

    async def stubborn(number: int):
        while number == 1 and not over.is_set():
            try:
                await over.wait()
            except asyncio.CancelledError:
                continue

    running = harness(app_with(stubborn, timeout="5s"))
    running.run(1)

    send(running, b"1")
    send(running, b"2")
    running.run(60)
    assert [each["error"].split(":")[0] for each in results(running)] == ["Abandoned"]

    running.at(running.now, over.set)
    running.run(1)
    assert [each["status"] for each in results(running)] == ["error", "ok"]


@pytest.mark.parametrize(
    "error", [OSError("gone"), SystemExit(3), KeyboardInterrupt(), asyncio.CancelledError(), GeneratorExit()]
)
def test_nothing_that_a_command_raises_ends_the_process_and_the_next_one_is_made(harness, error):
    async def bad(number: int):
        if number == 1:
            raise error

    running = harness(app_with(bad))
    running.run(1)

    send(running, b"1")
    send(running, b"2")

    assert [each["status"] for each in results(running)] == ["error", "ok"]
    assert (counters(running)["done"], counters(running)["failed"]) == (2, 1)


def test_an_answer_goes_where_the_sender_wants_it_with_its_correlation_data(harness):
    async def target(target: Target):
        return {"target": target.degrees}

    running = harness(app_with(target))
    running.run(1)

    send(running, {"degrees": 21}, response_topic="app/answers/me", correlation=b"\x00\xff17")

    (answer,) = running.broker.messages("app/answers/me")
    at = "2026-01-01T00:00:01.000Z"
    assert answer.json == {"status": "ok", "data": {"target": 21.0}, "error": None, "at": at}
    assert answer.correlation == b"\x00\xff17"
    assert not answer.retain
    assert len(results(running)) == 1


@pytest.mark.parametrize(
    "topic",
    [
        "other/answers",
        "app",
        "appendix/x",
        "app/boiler/set",
        "app/status",
        "app/#",
        "app/+/x",
        "app/x/state",
        "app/\x00",
        "",
    ],
)
def test_an_app_is_no_reflector(harness, topic, caplog):
    async def target(target: Target):
        return {"target": target.degrees}

    running = harness(app_with(target))
    running.run(1)
    before = len(running.broker.messages(topic))

    send(running, {"degrees": 21}, response_topic=topic, correlation=b"x")

    assert not any(each.correlation for each in running.broker.log)
    assert "cannot be answered" in caplog.text
    assert len(results(running)) == 1
    assert len(running.broker.messages(topic)) - before <= 1  # the heartbeat


def test_correlation_data_without_end_is_not_sent_back(harness):
    async def target(number: int): ...

    running = harness(app_with(target))
    running.run(1)

    send(running, b"1", response_topic="app/answers", correlation=b"x" * 5000)

    assert running.broker.messages("app/answers") == []
    assert len(results(running)) == 1


def test_a_command_for_nobody_is_told_in_the_log_and_to_whoever_wants_an_answer(harness, caplog):
    async def target(number: int): ...

    running = harness(app_with(target))
    running.run(1)

    running.broker.send("app/attic/set", b"1")
    running.run(1)

    assert not any(each.topic.startswith("app/attic") for each in running.broker.log)
    assert "there is no command for the device 'attic'" in caplog.text

    running.broker.send("app/attic/set", b"1", response_topic="app/answers")
    running.run(1)
    assert [each["status"] for each in answer(running)] == ["error"]
    assert not any(each.topic.startswith("app/attic") for each in running.broker.log)


def test_a_plain_function_may_be_a_command_and_take_no_payload(harness):
    made = []

    def press():
        made.append(1)
        return {"pressed": True}

    running = harness(app_with(press))
    running.run(1.5)

    send(running, b"")

    assert made == [1]
    assert running.states("boiler") == [{"pressed": True}]


def test_telemetry_and_command_may_share_a_name_and_then_share_the_state(harness):
    async def target(target: Target):
        return {"t": target.degrees}

    app = app_with(target)
    app.add_telemetry("boiler", Scripted(READING), interval=60, publish=OnChange(5))
    running = harness(app)
    running.run(1)

    send(running, {"degrees": 22})
    running.run("61s")

    assert running.states("boiler") == [READING, {"t": 22.0}]


def test_subscriptions_are_made_again_after_a_reconnect(harness):
    made = []

    async def take(number: int):
        made.append(number)

    running = harness(app_with(take))
    running.run(1)
    running.broker.stop()
    running.run(5)
    running.broker.start()
    running.run(60)

    send(running, b"1")

    assert made == [1]


def test_a_refused_subscription_is_told_with_what_to_do_and_costs_nothing_else(harness, caplog):
    async def take(number: int): ...

    app = app_with(take)
    app.add_telemetry("meter", Scripted(READING), interval=10)
    running = harness(app)
    running.broker.refuse_subscriptions = {"app/+/set"}

    running.run(30)

    assert "access list" in caplog.text
    assert len(running.states("meter")) >= 3
    assert running.status()["mqtt"]["last_error"].startswith("the broker refused the subscription to 'app/+/set'")


def test_who_sends_an_empty_message_to_a_device_that_is_polled_is_told_where_it_belongs(harness):
    async def target(target: Target): ...

    app = app_with(target)
    app.add_telemetry("boiler", lambda: READING, interval=60)
    running = harness(app)
    running.run(1)
    send(running, b"")

    (result,) = results(running)
    assert result["error"] == (
        "the message is empty: send a JSON object, or an empty message to app/boiler/get to poll the device"
    )


def test_an_empty_message_without_a_value_of_another_kind_is_named_too(harness):
    async def take(number: int): ...

    running = harness(app_with(take))
    running.run(1)
    send(running, b"")

    (result,) = results(running)
    assert result["error"].startswith("the message is empty: ")
    assert "get" not in result["error"]


@pytest.mark.slow
def test_commands_that_come_faster_than_answers_can_go_are_executed_or_refused_and_counted_and_readings_go_on(harness):
    executed, sent = [], 20_000

    async def take(command: dict):
        executed.append(command["number"])

    app = app_with(take)
    app.add_telemetry("meter", lambda: {"n": running.now}, interval=1)
    running = harness(app)
    running.run(5)
    running.broker.freeze()
    for number in range(sent - 1):
        running.broker.send("app/boiler/set", {"number": number, "transaction": number})
    running.broker.send("app/boiler/set", b"{")
    running.run(8)
    running.broker.thaw()
    running.run(60)

    assert executed == sorted(executed)
    assert 0 < len(executed) < sent
    running.broker.send("app/introspect", {"sections": ["devices"]}, response_topic="app/answers")
    running.run(1)
    commands = answer(running)[-1]["data"]["devices"]["boiler"]["runtime"]["commands"]
    assert (commands["done"], commands["refused"]) == (len(executed), sent - len(executed))
    told = [each["error"] for each in results(running) if each["error"]]
    assert all("ask again in a few seconds" in error for error in told)
    refused = [each.get("transaction") for each in results(running) if each["error"]]
    assert refused.count(None) <= 1
    assert not set(refused) & set(executed)
    polled = [state["n"] for state in running.states("meter")]
    assert len(set(polled)) >= 73


def test_an_answer_that_nobody_waits_for_any_more_is_not_sent(harness):
    async def slow(number: int):
        await asyncio.sleep(5)
        return {"number": number}

    running = harness(app_with(slow))
    running.run(1)
    send(running, b"1")
    running.broker.stop()
    running.run(20)
    running.broker.start()
    running.run(60)

    assert results(running) == []
    assert running.states("boiler") == [{"number": 1}]


def test_a_flood_of_bad_commands_is_a_line_a_minute(harness, caplog):
    async def take(number: int): ...

    running = harness(app_with(take))
    running.run(1)

    for _ in range(1000):
        running.broker.send("app/boiler/set", b"x")
    running.run(30)

    assert caplog.text.count("failed so far") == 1
    assert len(results(running)) == 1000


def test_a_refusal_takes_no_more_steps_than_an_executed_command(harness):
    async def take(number: int): ...

    running = harness(app_with(take))
    running.run(1)

    def steps(payload):
        for _ in range(200):
            running.broker.send("app/boiler/set", payload)
        with Steps() as counted:
            running.run(5)
        return counted.count

    steps(b"1")
    executed, refused = steps(b"1"), steps(b"x")
    assert refused < 1.1 * executed, (refused, executed)


# Polls on demand


def answer(running):
    return [json.loads(each.payload) for each in running.broker.messages("app/answers")]


def ask(running, **options):
    running.broker.send("app/d/get", b"", response_topic="app/answers", **options)
    running.run(0.5)


def polled(handler, **words):
    app = App("app")
    app.add_telemetry("d", handler, **{"interval": "25m", **words})
    return app


def test_a_reading_can_be_asked_for_whatever_the_publish_rule_says(harness):
    running = harness(polled(Scripted(READING), publish=OnChange(5)))
    running.run(10)

    ask(running, correlation=b"1")

    assert running.states("d") == [READING, READING]
    at = "2026-01-01T00:00:10.000Z"
    assert answer(running) == [{"status": "ok", "data": READING, "error": None, "at": at}]


def test_asking_leaves_the_schedule_as_it_is(harness):
    running = harness(polled(Scripted(READING), interval=60))
    running.run(30)
    ask(running)
    running.run(91)

    assert [each.at for each in running.broker.messages("app/d/state")] == pytest.approx([0, 30, 60, 120], abs=0.1)


def test_asking_again_too_soon_is_refused(harness):
    running = harness(polled(Scripted(READING), throttle="10s"))
    running.run(10)

    ask(running)
    ask(running)

    assert [each["status"] for each in answer(running)] == ["ok", "error"]
    assert "throttled: two requested polls are at least 10s apart; ask again in 9.5s" in answer(running)[1]["error"]


def test_whoever_asks_while_a_poll_is_under_way_gets_what_comes_of_it(harness):
    async def slow():
        await asyncio.sleep(5)
        return READING

    running = harness(polled(slow))
    running.run(1)

    for _ in range(3):
        running.broker.send("app/d/get", b"", response_topic="app/answers")
    running.run(10)

    assert [each["status"] for each in answer(running)] == ["ok", "ok", "ok"]
    assert len(running.states("d")) == 1


def test_a_poll_that_hangs_gathers_a_bounded_number_of_askers_and_answers_them_at_the_end(harness):
    async def hang():
        await asyncio.sleep(100_000)

    running = harness(polled(hang, timeout=None))
    running.run(1)

    for _ in range(100):
        running.broker.send("app/d/get", b"", response_topic="app/answers")
    running.run(1)
    refused = len(answer(running))
    running.stop()

    assert refused == 84
    assert "16 requests already wait" in answer(running)[0]["error"]
    assert len(answer(running)) == 100
    assert "the app stopped" in answer(running)[-1]["error"]


def test_a_failed_poll_is_answered_with_its_error(harness):
    running = harness(polled(Scripted(READING, fail(9))))
    running.run(1)

    ask(running)

    assert answer(running)[0]["status"] == "error"
    assert "OSError" in answer(running)[0]["error"] or "Unavailable" in answer(running)[0]["error"]


def test_an_open_circuit_is_not_asked_around(harness):
    handler = Scripted(fail(100))
    running = harness(polled(handler, interval=60, circuit_breaker=CircuitBreaker(1)))
    running.run(1)

    for _ in range(20):
        ask(running)

    assert "circuit is open" in answer(running)[0]["error"]
    assert len(running.errors("d")) == 1


def test_asking_for_a_device_that_is_not_there_is_answered(harness):
    running = harness(polled(Scripted(READING)))
    running.run(1)

    running.broker.send("app/attic/get", b'{"transaction": 3}', response_topic="app/answers")
    running.run(1)

    assert answer(running)[0]["status"] == "error"
    assert answer(running)[0]["transaction"] == 3
