"""A request to a running app, and the pages of its answer."""

import json

import pytest

from leadsman.cli import remote
from leadsman.errors import BrokerError, LeadsmanError
from leadsman.mqtt.broker import Brokers
from leadsman.mqtt.connection import Received


class Answering:
    """A connection to a broker on which an app answers with these pages."""

    def __init__(self, listener, pages):
        self.listener, self.pages, self.closed = listener, pages, False

    async def subscribe(self, topic):
        self.topic = topic

    def publish(self, message):
        transaction = json.loads(message.payload)["transaction"]
        for page in self.pages:
            answer = {"status": "ok", "error": None, "transaction": transaction, **page}
            self.listener.received(Received("house/introspect/response", json.dumps(answer).encode(), False))
        return 1

    async def close(self):
        self.closed = True


@pytest.fixture
def ask(monkeypatch):
    def asked(*pages, timeout=0.05):
        async def connect(broker, clock, hello, listener):
            return Answering(listener, pages)

        monkeypatch.setattr(remote.client, "connect", connect)
        return remote.ask(Brokers.of("mqtt://broker.lan"), "house/introspect", {}, timeout)

    return asked


def page(number, of, **data):
    return {"data": data, "page": number, "pages": of}


def test_an_answer_of_one_page_is_its_data(ask):
    assert ask({"data": {"app": 1}}) == {"app": 1}


def test_pages_are_put_together_in_their_order_whichever_comes_first(ask):
    found = ask(
        page(3, 3, devices={"c": 3}, trace=[3]),
        page(1, 3, app=1, devices={"a": 1}),
        page(1, 3, app=1, devices={"a": 1}),
        page(2, 3, devices={"b": 2}, trace=[1, 2]),
    )

    assert found == {"app": 1, "devices": {"a": 1, "b": 2, "c": 3}, "trace": [1, 2, 3]}
    assert list(found["devices"]) == ["a", "b", "c"]


def test_a_page_that_does_not_come_is_reported_with_how_many_did(ask):
    with pytest.raises(BrokerError, match="2 of 3 pages came, and then none within 0.05 s; ask for some devices"):
        ask(page(1, 3), page(3, 3))


def test_no_answer_is_reported(ask):
    with pytest.raises(BrokerError, match="no answer at 'house/introspect'"):
        ask()


def test_an_error_is_raised(ask):
    with pytest.raises(BrokerError, match="there is no device 'x'"):
        ask({"data": None, "status": "error", "error": "there is no device 'x'"})


def test_the_error_of_an_app_cannot_drive_the_terminal(ask):
    with pytest.raises(BrokerError, match=r"\\x1b\[2J"):
        ask({"data": None, "status": "error", "error": "\x1b[2J"})


@pytest.mark.parametrize("data", [None, [], "text", 5])
def test_an_answer_that_is_no_document_is_named(ask, data):
    with pytest.raises(BrokerError, match="is not a leadsman app, or is one of another version"):
        ask({"data": data})
    with pytest.raises(BrokerError, match="is not a leadsman app, or is one of another version"):
        ask(page(1, 2, app=1), {"data": data, "page": 2, "pages": 2})


@pytest.mark.parametrize("odd", [{"page": "1"}, {"pages": [2]}, {"page": [1]}, {"pages": None}])
def test_a_page_with_an_odd_number_is_another_senders(ask, odd):
    with pytest.raises(BrokerError, match="no answer at 'house/introspect'"):
        ask({"data": {"app": 1}, **odd})


def test_what_lacks_something_in_an_answer_is_named():
    missing = "the field 'opened_at' is missing; use the version of the app here"
    with pytest.raises(LeadsmanError, match=missing), remote.any_version():
        {}["opened_at"]
    with pytest.raises(BrokerError, match="no answer"), remote.any_version():
        raise BrokerError("no answer")


def test_a_person_reads_how_many_pages_have_come(ask, monkeypatch, capsys):
    monkeypatch.setattr(remote, "_PATIENCE", 0.02)
    monkeypatch.setattr("sys.stderr.isatty", lambda: True, raising=False)

    with pytest.raises(BrokerError):
        ask(page(1, 3), page(2, 3), timeout=1)

    assert "2 of 3 pages have come" in capsys.readouterr().err


class TestSeveralBrokers:
    """The app answers at one broker of a list; others are silent, or cannot be reached."""

    BOTH = Brokers.of(["mqtt://a", "mqtt://b"])

    @pytest.fixture
    def answering(self, monkeypatch):
        """What each broker answers, by its host: pages, or an error."""
        answers = {}

        async def connect(broker, clock, hello, listener):
            answer = answers[broker.host]
            if isinstance(answer, Exception):
                raise answer
            return Answering(listener, answer)

        monkeypatch.setattr(remote.client, "connect", connect)
        return answers

    def ask(self):
        return remote.ask(self.BOTH, "house/introspect", {}, 0.05)

    def look(self):
        return remote.look(self.BOTH, "house/introspect", {}, 0.05, (), "house/status")

    @pytest.mark.parametrize("first", [[], BrokerError("cannot connect to mqtt://a:1883")])
    def test_the_app_is_asked_where_it_answers(self, answering, first):
        answering |= {"a": first, "b": [{"data": {"app": 1}}]}

        assert self.ask() == {"app": 1}
        assert self.look().data == {"app": 1}

    def test_an_app_that_refuses_is_not_looked_for_elsewhere(self, answering):
        answering |= {"a": [{"status": "error", "error": "busy"}], "b": [{"data": {"app": 1}}]}

        with pytest.raises(BrokerError, match="busy"):
            self.ask()
        assert self.look().refused

    def test_if_it_answers_nowhere_the_error_names_each_broker(self, answering):
        answering |= {"a": BrokerError("cannot connect to mqtt://a:1883"), "b": []}

        with pytest.raises(BrokerError, match=r"mqtt://a:1883; no answer .* on mqtt://b:1883"):
            self.ask()
        assert "no answer" in self.look().error

    def test_if_no_broker_can_be_reached_that_is_said_of_each(self, answering):
        answering |= {name: BrokerError(f"cannot connect to mqtt://{name}:1883") for name in "ab"}

        for find in (self.look, lambda: remote.retained(self.BOTH, ("+/status",))):
            with pytest.raises(BrokerError, match="mqtt://a:1883; cannot connect to mqtt://b:1883"):
                find()

    def test_advice_about_both_brokers_is_given_once(self, answering):
        for name in "ab":
            answering[name] = BrokerError(f"cannot connect to mqtt://{name}; start the broker")
            answering[name].hint = "; start the broker"

        with pytest.raises(BrokerError) as caught:
            self.ask()
        assert str(caught.value) == "cannot connect to mqtt://a; cannot connect to mqtt://b; start the broker"
        assert caught.value.without_hint() == "cannot connect to mqtt://a; cannot connect to mqtt://b"

    def test_what_brokers_retain_is_put_together_and_the_first_one_counts(self, answering, monkeypatch):
        async def listen(exchange, broker):
            if broker.host == "a":
                return {"x": "of a"}
            return {"x": "of b", "y": "of b"}

        monkeypatch.setattr(remote._Exchange, "listen", listen)

        assert remote.retained(self.BOTH, ("#",)) == {"x": "of a", "y": "of b"}


def test_a_broker_that_says_that_nobody_listens_is_not_waited_for(ask, monkeypatch):
    class Deserted(Answering):
        def publish(self, message):
            self.listener.acknowledged(1, remote.NO_SUBSCRIBERS)
            return 1

    async def connect(broker, clock, hello, listener):
        return Deserted(listener, ())

    monkeypatch.setattr(remote.client, "connect", connect)
    with pytest.raises(
        BrokerError, match="no answer at 'house/introspect' on mqtt://broker.lan:1883: nobody listens there;"
    ):
        remote.ask(Brokers.of("mqtt://broker.lan"), "house/introspect", {}, 3600.0)


def test_only_who_expects_it_gets_an_answer_without_data(ask, monkeypatch):
    async def connect(broker, clock, hello, listener):
        return Answering(listener, [{"data": None}])

    monkeypatch.setattr(remote.client, "connect", connect)
    brokers = Brokers.of("mqtt://broker.lan")
    assert remote.ask(brokers, "house/introspect", {}, 1.0, may_be_empty=True) is None
    with pytest.raises(BrokerError, match="is not a leadsman app"):
        remote.ask(brokers, "house/introspect", {}, 1.0)
