"""A request to a running app, and the pages of its answer: `leadsman inspect` prints what it gets."""

import json

import pytest

from leadsman.errors import BrokerError

BROKER = "mqtt://broker.lan"
READS = {"kind": "telemetry", "handler": "read", "needs": [], "enabled": True}
WORKS = {
    "held": False,
    "status": "ok",
    "stale": False,
    "circuit": "closed",
    "last_error": None,
    "poll_under_way": None,
    "consecutive_failures": 0,
    "counters": {"polls": 1, "failed_polls": 0},
    "last_success_at": "2026-11-22T08:50:00.000Z",
    "next_poll_at": None,
}
DOCUMENT = {
    "app": {"prefix": "house"},
    "devices": {"attic": {"registrations": [READS], "runtime": WORKS}},
    "jobs": {},
}


@pytest.fixture
def ask(stage):
    """Ask an app that gives these answers, one after the other."""

    def asked(*answers, timeout="50ms", broker=BROKER):
        stage.answers("house/introspect", list(answers))
        return stage.run("inspect", "--prefix", "house", "--mqtt", broker, "--json", "--timeout", timeout)

    return asked


def data(found):
    """The document that a command prints."""
    assert (found.code, found.err) == (0, "")
    return json.loads(found.out)


def page(number, of, **data):
    return {"data": data, "page": number, "pages": of}


def test_an_answer_of_one_page_is_its_data(ask):
    assert data(ask({"data": {"app": 1}})) == {"app": 1}


def test_pages_are_put_together_in_their_order_whichever_comes_first(ask):
    found = data(
        ask(
            page(3, 3, devices={"c": 3}, trace=[3]),
            page(1, 3, app=1, devices={"a": 1}),
            page(1, 3, app=1, devices={"a": 1}),
            page(2, 3, devices={"b": 2}, trace=[1, 2]),
        )
    )

    assert found == {"app": 1, "devices": {"a": 1, "b": 2, "c": 3}, "trace": [1, 2, 3]}
    assert list(found["devices"]) == ["a", "b", "c"]


def test_a_page_that_does_not_come_is_reported_with_how_many_did(ask):
    found = ask(page(1, 3), page(3, 3))

    assert found.code == 1
    assert "2 of 3 pages came, and then none within 0.05 s; ask for some devices" in found.err


def test_no_answer_is_reported(ask):
    assert "no answer at 'house/introspect'" in ask().err


def test_an_error_is_printed(ask):
    found = ask({"data": None, "status": "error", "error": "there is no device 'x'"})

    assert (found.code, found.err) == (1, "leadsman: there is no device 'x'\n")


def test_the_error_of_an_app_cannot_drive_the_terminal(ask):
    assert r"\x1b[2J" in ask({"data": None, "status": "error", "error": "\x1b[2J"}).err


@pytest.mark.parametrize("odd", [None, [], "text", 5])
def test_an_answer_that_is_no_document_is_named(ask, odd):
    told = "is no leadsman app, or has another version"
    assert told in ask({"data": odd}).err
    assert told in ask(page(1, 2, app=1), {"data": odd, "page": 2, "pages": 2}).err


@pytest.mark.parametrize("odd", [{"page": "1"}, {"pages": [2]}, {"page": [1]}, {"pages": None}])
def test_a_page_with_an_odd_number_is_another_senders(ask, odd):
    assert "no answer at 'house/introspect'" in ask({"data": {"app": 1}, **odd}).err


def test_what_lacks_something_in_an_answer_is_named(stage):
    stage.answers("house/introspect", {"app": {}, "devices": {"a": {"runtime": {"held": True}}}, "jobs": {}})

    found = stage.run("held", "--prefix", "house", "--mqtt", BROKER)

    assert found.code == 1
    assert "the field 'failing_since' is missing; use the version of the app here" in found.err


@pytest.mark.slow
def test_a_person_reads_how_many_pages_have_come(ask, monkeypatch):
    monkeypatch.setattr("sys.stderr.isatty", lambda: True, raising=False)

    assert "2 of 3 pages have come" in ask(page(1, 3), page(2, 3), timeout="2500ms").err


class TestSeveralBrokers:
    """The app answers at one broker of a list; others are silent, or cannot be reached."""

    BOTH = "mqtt://a,mqtt://b"

    @pytest.fixture
    def answering(self, stage):
        """Says what each broker does, by its host: it answers, or cannot be reached."""

        def answering(**hosts):
            for host, answer in hosts.items():
                if isinstance(answer, Exception):
                    stage.broker(host).refuse_connect = answer
                elif answer is not None:
                    stage.answers("house/introspect", answer, host)

        return answering

    @pytest.fixture
    def ask(self, stage):
        """As `leadsman inspect`, which asks, and `leadsman why`, which also looks at what is retained."""

        def ask(command, *arguments):
            return stage.run(
                command, *arguments, "--prefix", "house", "--mqtt", self.BOTH, "--json", "--timeout", "50ms"
            )

        return ask

    @pytest.mark.parametrize("first", [None, BrokerError("cannot connect to mqtt://a:1883")])
    def test_the_app_is_asked_where_it_answers(self, answering, ask, first):
        answering(a=first, b=DOCUMENT)

        assert data(ask("inspect")) == DOCUMENT
        assert data(ask("why", "attic"))["state"] == "ok"

    def test_an_app_that_refuses_is_not_looked_for_elsewhere(self, answering, ask):
        answering(a="busy", b=DOCUMENT)

        assert ask("inspect").err == "leadsman: busy\n"
        assert ask("why", "attic").err == "leadsman: busy\n"

    def test_if_it_answers_nowhere_the_error_names_each_broker(self, answering, ask):
        answering(a=BrokerError("cannot connect to mqtt://a:1883"), b=None)

        error = ask("inspect").err
        assert "mqtt://a:1883; no answer at" in error
        assert "on mqtt://b:1883" in error
        assert "no answer" in ask("why", "attic").out

    def test_if_no_broker_can_be_reached_that_is_said_of_each(self, answering, ask, stage):
        answering(**{name: BrokerError(f"cannot connect to mqtt://{name}:1883") for name in "ab"})
        both = "mqtt://a:1883; cannot connect to mqtt://b:1883"

        assert both in ask("inspect").err
        assert both in ask("why", "attic").out
        assert both in stage.run("gaps", "--mqtt", self.BOTH).err

    def test_advice_about_both_brokers_is_given_once(self, answering, ask):
        errors = {name: BrokerError(f"cannot connect to mqtt://{name}; start the broker") for name in "ab"}
        for error in errors.values():
            error.hint = "; start the broker"
        answering(**errors)

        assert ask("inspect").err == (
            "leadsman: cannot connect to mqtt://a; cannot connect to mqtt://b; start the broker\n"
        )

    def test_advice_about_a_broker_gives_way_to_that_about_an_app_that_is_looked_for(self, answering, stage):
        error = BrokerError("cannot connect to mqtt://a; start the broker")
        error.hint = "; start the broker"
        answering(a=error)

        assert stage.run("gaps", "--mqtt", "mqtt://a").err.startswith(
            "leadsman: cannot connect to mqtt://a; leadsman looked for the app there; "
        )

    def test_what_brokers_retain_is_put_together_and_the_first_one_counts(self, stage):
        stage.keep({"x/registry": {"devices": {"of_a": {}}}}, "a")
        stage.keep({"x/registry": {"devices": {"of_b": {}}}, "y/registry": {"devices": {"also_of_b": {}}}}, "b")

        def asked(device):
            stage.requests.clear()
            found = stage.run("why", device, "--mqtt", self.BOTH, "--timeout", "10ms")
            return [topic for topic, _ in stage.requests] or found.err

        assert asked("of_a")[0] == "x/introspect"
        assert asked("also_of_b")[0] == "y/introspect"
        assert "has a device 'of_b'" in asked("of_b")


def test_a_broker_that_says_that_nobody_listens_is_not_waited_for(ask, stage):
    stage.broker().refusals["house/introspect"] = 0x10

    error = ask(timeout="1h").err

    assert "no answer at 'house/introspect' on mqtt://broker.lan:1883: nobody listens there;" in error


def test_only_what_expects_it_gets_an_answer_without_data(ask, stage):
    about = {"app": {}, "devices": {"boiler": {"registrations": [READS]}}, "fields": {}}
    stage.answers("house/boiler/get", [{"data": None}])
    assert "is no leadsman app" in ask({"data": None}).err
    stage.answers("house/introspect", about)

    assert stage.run("poll", "boiler", "--prefix", "house", "--mqtt", BROKER, "--json").out == "null\n"
