"""Finds a running app at its broker, sends it a request over MQTT and waits for the answer, which carries the
transaction of the request. The pages of a large answer are put together. In a cluster each node answers for the devices
that it has."""

import argparse
import asyncio
import contextlib
import getpass
import json
import os
import re
import socket
import sys
import time
import uuid
from collections.abc import Callable, Collection, Coroutine, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar, cast

from leadsman.core.introspection.pages import merge
from leadsman.core.mqtt.answers import object_in
from leadsman.core.mqtt.broker import Broker, Brokers, brokers_of
from leadsman.core.mqtt.connection import Received
from leadsman.core.mqtt.message import Message
from leadsman.core.mqtt.side_connection import SideConnection
from leadsman.core.mqtt.topics import Topics, check_name
from leadsman.core.question import Question
from leadsman.core.settings.load import load_broker
from leadsman.core.text import clean, count_noun
from leadsman.core.text.suggestion import suggestion
from leadsman.errors import BrokerError, InvalidValue, LeadsmanError, RequestDenied, SubscriptionRefused
from leadsman.tools.cli.arguments import UsageError
from leadsman.tools.cli.target import load_app, sources_of

if TYPE_CHECKING:
    from leadsman.core.introspection.document import Answer, Introspection, Request

_T = TypeVar("_T")
NO_SUBSCRIBERS = 0x10
"""PUBACK: nobody has subscribed to the topic (MQTT 5 §3.4.2.1). Not every broker sends it."""
_TARGET = re.compile(r"[\w./-]+:[A-Za-z_]\w*")
"""An app, such as ``house:app``."""
_PROGRESS_DELAY = 1.0
"""Seconds after which a person who waits reads what the command waits for, and then how many pages have come."""

_DEVICES_OF: Question[Callable[[Iterable[Received], float], Iterable[tuple[str, list[str]]]]] = Question(
    "devices of nodes"
)
_OWNERS_OF: Question[Callable[[Iterable[Received], float, str], Mapping[str, Collection[str]]]] = Question(
    "owners of devices"
)


def ask(
    brokers: Brokers,
    topic: str,
    request: Mapping[str, object],
    timeout: float,
    *,
    status: str | None = None,
    may_be_empty: bool = False,
) -> Any:
    """Send a request to `topic` and return the ``data`` of its answer. Of several brokers the first one counts at which
    the app answers. A person at a terminal reads what the command waits for, and how many pages have come. An answer
    without data is not one of leadsman, unless it `may_be_empty`. At the topic of its `status` an app that is offline
    is seen, and one whose connection breaks as it answers.

    Raises:
        BrokerError: the broker cannot be reached, there is no answer or no further page within `timeout` seconds, or
            the answer is an error.
    """

    def visit(broker: Broker) -> Coroutine[None, None, Any]:
        filters = () if status is None else (status,)
        return _Exchange(topic, request, may_be_empty=may_be_empty).ask(broker, timeout, filters, status)

    return next(_at_each(brokers, visit))


def _at_each(brokers: Brokers, visit: Callable[[Broker], Coroutine[None, None, _T]]) -> Iterator[_T]:
    """What visits bring, of each broker where one succeeds.

    Raises:
        BrokerError: none of them does; or at one of them the app refuses to answer.
    """
    faults: list[BrokerError] = []
    for broker in brokers:
        try:
            yield asyncio.run(visit(broker))
        except _RequestRefusedError:
            raise
        except BrokerError as error:
            faults.append(error)
    if len(faults) == len(brokers):
        raise _all(faults)


class Asked(NamedTuple):
    """What `ask_with_retained` found."""

    data: Any
    """The ``data`` of the answer; None if there is none."""
    error: str | None
    """Why there is none."""
    refused: bool
    """Whether the app answered with an error."""
    seen: dict[str, Received]
    """What the broker retains, by topic."""
    broke: bool = False
    """Whether the app lost its connection as it answered."""


def ask_with_retained(
    brokers: Brokers, topic: str, request: Mapping[str, object], timeout: float, filters: Sequence[str], status: str
) -> Asked:
    """Send a request as `ask`, and read what the broker retains as well. An app whose status is ``offline`` is not
    waited for. If it answers at none of several brokers, the first one that can be reached counts.

    Args:
        filters: topic filters of what the broker may retain.
        status: the topic of the app's status.

    Raises:
        BrokerError: the broker cannot be reached.
    """

    async def visit(broker: Broker) -> Asked:
        exchange = _Exchange(topic, request)
        try:
            data = await exchange.ask(broker, timeout, (status, *filters), status)
        except _NoAnswerError as error:
            refused, broke = isinstance(error, _RequestRefusedError), isinstance(error, _BrokenAnswerError)
            return Asked(None, str(error), refused, exchange.seen, broke)
        return Asked(data, None, False, exchange.seen)

    silent: Asked | None = None
    for found in _at_each(brokers, visit):
        if found.data is not None or found.refused:
            return found
        silent = silent or found
    assert silent is not None  # else there was an error
    return silent


def retained(brokers: Brokers, filters: Sequence[str]) -> dict[str, Received]:
    """What brokers retain, by topic, except for the last filter: its acknowledgement shows that the messages of the
    others have come. If several retain a topic, the first one counts.

    Raises:
        BrokerError: no broker can be reached, or each refuses a filter.
    """
    found: dict[str, Received] = {}
    for kept in _at_each(brokers, lambda broker: _retained(broker, filters)):
        found = {message.topic: message for message in kept} | found
    return found


async def _retained(broker: Broker, filters: Sequence[str]) -> list[Received]:
    async with SideConnection().at(broker) as side:
        for error in (await side.read(filters[:-1], filters[-1])).values():
            raise error
    return side.messages


def _all(faults: Sequence[BrokerError]) -> BrokerError:
    """One error for all brokers."""
    if len(faults) == 1:
        return faults[0]
    hints = "".join(dict.fromkeys(fault.hint for fault in faults))
    error = BrokerError("; ".join(fault.without_hint() for fault in faults) + hints)
    error.hint = hints
    return error


def named_app(options: argparse.Namespace) -> tuple[Brokers, str | None]:
    """The brokers, and the prefix of the app that the command line names; None if it names none."""
    if options.target is None:
        return known_brokers(options), options.prefix
    app = load_app(options)
    return app.brokers, options.prefix or app.topics.prefix


def running_app(options: argparse.Namespace) -> tuple[Brokers, str]:
    """The brokers and the prefix of a running app. If neither the app nor a prefix is given, it is the only app at the
    broker, or the only one there with the device."""
    brokers, prefix = named_app(options)
    if prefix is not None:
        return brokers, prefix
    devices = getattr(options, "device", None)
    try:
        return brokers, prefix_of(brokers, devices[0] if devices else None)
    except BrokerError as error:
        advice = "leadsman looked for the app there; write --mqtt for another broker, or MODULE:APP, such as house:app"
        raise BrokerError(f"{error.without_hint()}; {advice}") from None


def known_brokers(options: argparse.Namespace) -> Brokers:
    """The brokers of the settings, without an app."""
    return brokers_of(load_broker(sources_of(options)))


def split_names(options: argparse.Namespace, *, app_first: bool = False) -> None:
    """Tell the words of a command line apart: an app that comes first becomes the target, the others are the devices.
    The app is a word with one colon, or a path, since the name of a device may have a colon, and none has a slash.
    Where the app is given by an option, all words are devices.

    Args:
        options: their `named` become `target` and `device`.
        app_first: whether the first word is the app, whatever it looks like.

    Raises:
        UsageError: a word can be no device.
    """
    words = list(options.named)
    given = options.target is not None or getattr(options, "prefix", None) is not None
    if words and not given and (app_first or _is_app(words[0])):
        options.target = words.pop(0)
    try:
        options.device = [check_name(word) for word in words]
    except InvalidValue as error:
        raise UsageError(str(error)) from None


def _is_app(word: str) -> bool:
    return _TARGET.fullmatch(word) is not None or "/" in word or word.endswith(".py")


def one_device(options: argparse.Namespace) -> str | None:
    """The device that is named, if any; see `split_names`. Raises `UsageError` if there are several."""
    split_names(options, app_first=len(options.named) > 1)
    if len(options.device) > 1:
        raise UsageError(f"{clean(options.device[1])!r} is one word too many; write one device, or none for all")
    return options.device[0] if options.device else None


def order(options: argparse.Namespace, action: str, request: Mapping[str, object]) -> Iterator[tuple[str, Any]]:
    """Have a running app do something with each device of the command line, on behalf of the user who types it. Gives
    the devices with the answers.

    Args:
        options: those of the command line.
        action: the level of the topic below that of the device.
        request: what is to be done, if the action does not name it.
    """
    split_names(options)
    if not options.device:
        raise UsageError(f"name the device: leadsman {action} boiler")
    brokers, prefix = running_app(options)
    for device in options.device:
        yield device, ask(brokers, f"{prefix}/{device}/{action}/set", {**request, "by": sender()}, options.timeout)


def sender() -> str:
    """The user who types this, for the log and the trace of the app."""
    try:
        user = getpass.getuser()
    except (KeyError, OSError):  # a user without a name, as in some containers
        user = str(os.getuid()) if hasattr(os, "getuid") else "somebody"
    return f"{user}@{socket.gethostname()}"


def prefix_of(brokers: Brokers, device: str | None) -> str:
    """The prefix of the app that has a device, or of the only app, from the registries at the broker, or else the
    nodes of clusters, whose registries are not at the place of an app's.

    Raises:
        BrokerError: the broker cannot be reached.
        UsageError: there is no such app, or there are several.
    """
    found: dict[str, set[str]] = {}
    for topic, message in retained(brokers, ("+/registry", "+/registry/+", "+/status")).items():
        prefix, level, *_ = topic.split("/")
        document = object_in(message.payload) if level == "registry" else None
        if document is not None and isinstance(document.get("devices"), dict):
            found.setdefault(prefix, set()).update(cast("dict[str, object]", document["devices"]))
    if device is None or not any(device in devices for devices in found.values()):
        for prefix, devices in _of_nodes(brokers):
            found.setdefault(prefix, set()).update(devices)
    having = sorted(prefix for prefix, devices in found.items() if device is None or device in devices)
    if len(having) == 1:
        return having[0]
    if having:
        raise UsageError(f"{count_noun(len(having), 'app')} match; write --prefix {' or --prefix '.join(having)}")
    if not found:
        raise UsageError(
            f"no app has published a registry at {brokers}, or the broker sends what it keeps only for exact topics, "
            "as RabbitMQ does; write --prefix, or name the app (MODULE:APP)"
        )
    known = {name for devices in found.values() for name in devices}
    raise UsageError(f"no app at {brokers} has a device {clean(device or '')!r}; {suggestion(device or '', known)}")


def _of_nodes(brokers: Brokers) -> Iterator[tuple[str, list[str]]]:
    """What the nodes of all apps with a prefix of one level have: the prefix, and the devices."""
    try:
        seen = retained(brokers, ("+/nodes/+", "+/status"))
    except SubscriptionRefused:
        return  # this user may not read them
    if (devices_of := _DEVICES_OF.answer()) is not None:
        yield from devices_of(seen.values(), time.time())


def processes(brokers: Brokers, prefix: str, devices: Sequence[str] = ()) -> list[Topics]:
    """The topics of each process that answers about an app: of one that has all `devices`, or of all nodes of a cluster
    if none is given. Outside a cluster it is one process, whether it runs or not.

    Raises:
        LeadsmanError: the app is a cluster, and none of its nodes has these devices.
    """
    filters = (f"{prefix}/nodes/+", f"{prefix}/nodes/+/status", f"{prefix}/status")
    try:
        seen = retained(brokers, filters)
    except BrokerError:
        seen = {}  # the request that follows reports what is wrong, or needs no right to these topics
    owners_of = _OWNERS_OF.answer()
    owned: Mapping[str, Collection[str]] = {} if owners_of is None else owners_of(seen.values(), time.time(), prefix)
    found = list(owned)
    if owned and devices:
        found = [node for node, names in owned.items() if set(devices) <= set(names)][:1]
        if not found:
            names = ", ".join(repr(clean(each)) for each in devices)
            advice = f"leadsman cluster status {prefix} shows which node has which device"
            raise LeadsmanError(f"no node of {prefix!r} has {names} now; {advice}")
    return [Topics(prefix, None, node) for node in found] or [Topics(prefix)]


def process(brokers: Brokers, prefix: str, devices: Sequence[str] = ()) -> Topics:
    """The topics of the process that answers about these devices.

    Raises:
        LeadsmanError: see `processes`.
        UsageError: no device is given, and several nodes answer.
    """
    found = processes(brokers, prefix, devices)
    if len(found) > 1:
        places = " or --prefix ".join(f"{prefix}/nodes/{each.node}" for each in found)
        raise UsageError(
            f"{prefix!r} is a cluster, and each node answers for its own devices; write --prefix {places}, or name a "
            "device"
        )
    return found[0]


def ask_about_devices(options: argparse.Namespace, request: "Request") -> "Introspection":
    """Send a request to the process of a running app that has the devices of the command line, about these devices,
    and return its answer. Raises as `split_names`, `process` and `ask`."""
    split_names(options)
    brokers, prefix = running_app(options)
    topics = process(brokers, prefix, options.device)
    if options.device:
        request["devices"] = options.device
    answer: Introspection = ask(brokers, topics.introspect, request, options.timeout, status=topics.status)
    return answer


def section(answer: "Introspection", name: str) -> Any:
    """A section that an extension adds. Raises KeyError if it is not in the answer."""
    found: dict[str, object] = {**answer}
    return found[name]


@contextlib.contextmanager
def any_version() -> Iterator[None]:
    """A block that reads the answer of an app, which may have another version of leadsman.

    Raises:
        LeadsmanError: something is missing in the answer.
    """
    try:
        yield
    except (LeadsmanError, UnicodeError):
        raise
    except (LookupError, TypeError, AttributeError, ValueError, ArithmeticError) as error:
        from leadsman.core.introspection.why import odd  # only an odd answer needs it

        text = "the app answers in a form that this version of leadsman does not know"
        raise LeadsmanError(f"{text}: {odd(error)}; use the version of the app here, or update the app") from error


class _NoAnswerError(BrokerError):
    """The app did not answer."""


class _RequestRefusedError(_NoAnswerError):
    """The app answered with an error."""


class _BrokenAnswerError(_NoAnswerError):
    """The app lost its connection after the request. A broker that takes no message of the size of the answer, and
    does not announce its limit, closes the connection of who sends one."""


class _Exchange(SideConnection):
    """One request and its answer, on a connection of their own."""

    def __init__(self, topic: str, request: Mapping[str, object], *, may_be_empty: bool = False) -> None:
        super().__init__()
        self._may_be_empty = may_be_empty
        self._topic = topic
        self._quiet = not sys.stderr.isatty()
        self._transaction = uuid.uuid4().hex
        self._request = {**request, "transaction": self._transaction}
        self._pages: dict[int, Answer] = {}
        self._expected = 1
        self.seen: dict[str, Received] = {}
        """What the broker retains, by topic. Of a topic with many messages the last one is kept."""

    async def ask(self, broker: Broker, timeout: float, filters: Sequence[str] = (), status: str | None = None) -> Any:
        """Send the request, and return the data of its answer; see the function `ask`. What the broker retains at
        `filters` comes first, where it may be read."""
        progress = asyncio.create_task(self._show_progress(broker))
        try:
            async with self.at(broker):
                for topic_filter in filters:
                    with contextlib.suppress(SubscriptionRefused):
                        await self.connection.subscribe(topic_filter)
                await self.connection.subscribe(f"{self._topic}/response")
                session = self._session(status)
                if session is not None and session[0] == "offline":
                    timeout = min(timeout, _PROGRESS_DELAY)
                packet = self.connection.publish(Message(self._topic, json.dumps(self._request).encode()))
                while len(self._pages) < self._expected:
                    await self._next_page(packet, broker, timeout)
        except _NoAnswerError as error:
            now = self._session(status)
            if session is None or now is None or now[1] == session[1]:
                raise  # it has not connected anew: if it is offline now, it has ended
            what = (
                "the app lost its connection to the broker as it answered: the answer may be too large for the broker"
            )
            advice = "ask about one device, or raise the broker's limit of the size of a message"
            raise _BrokenAnswerError(f"{what}; {advice}") from error
        finally:
            progress.cancel()
        return self._data()

    async def _next_page(self, packet: int, broker: Broker, timeout: float) -> None:
        """Wait for a page that has not come yet.

        Args:
            packet: that of the request.
            broker: where it was sent.
            timeout: seconds.

        Raises:
            BrokerError: none came.
        """
        before = len(self._pages)

        def is_over() -> bool:
            code = self._codes.get(packet, 0)
            return len(self._pages) > before or code >= 0x80 or (code == NO_SUBSCRIBERS and not before)

        await self.until(is_over, timeout)
        code = self._codes.get(packet, 0)
        if code >= 0x80:
            advice = f"allow {self._topic!r} in its access list"
            raise RequestDenied(f"the broker refused the request (0x{code:02x}); {advice}", self._topic)
        if self.broken is not None:
            advice = f"if it does so each time, allow {self._topic!r} in its access list"
            raise RequestDenied(f"the connection ended after the request: {self.broken}; {advice}", self._topic)
        if len(self._pages) > before:
            return
        if before:
            came = f"{before} of {self._expected} pages"
            raise _NoAnswerError(f"{came} came, and then none within {timeout:g} s; ask for some devices")
        why = ": nobody listens there" if code == NO_SUBSCRIBERS else f" within {timeout:g} s"
        what = f"no answer at {self._topic!r} on {broker}{why}"
        raise _NoAnswerError(f"{what}; check that the app is running there, and its prefix")

    def _data(self) -> Any:
        """What the pages contain. Raises `BrokerError` if the answer is an error, or that of something else."""
        first = self._pages[min(self._pages)]
        if first.get("status") != "ok":
            raise _RequestRefusedError(clean(str(first.get("error"))))
        documents = [self._pages[number].get("data") for number in sorted(self._pages)]
        if documents == [None] and self._may_be_empty:
            return None
        if not all(isinstance(each, dict) for each in documents):
            raise _NoAnswerError(f"what answers at {self._topic!r} is no leadsman app, or has another version")
        return documents[0] if len(documents) == 1 else merge(documents)

    def _session(self, topic: str | None) -> tuple[object, object] | None:
        """The state and the session of the status at this topic; None if there is none."""
        message = None if topic is None else self.seen.get(topic)
        status = None if message is None else object_in(message.payload)
        return None if status is None else (status.get("state"), status.get("session"))

    async def _show_progress(self, broker: Broker) -> None:
        await asyncio.sleep(_PROGRESS_DELAY)
        if not self._pages:
            self._print_progress(f"waiting for an answer at {self._topic!r} on {broker} …")
        while True:
            await asyncio.sleep(_PROGRESS_DELAY)
            if self._pages:
                self._print_progress(f"{len(self._pages)} of {self._expected} pages have come …")

    def _print_progress(self, text: str) -> None:
        if not self._quiet:
            print(text, file=sys.stderr, flush=True)

    def received(self, message: Received) -> None:
        """See `ConnectionListener`."""
        if message.topic != f"{self._topic}/response":
            self.seen[message.topic] = message
            return
        answer = object_in(message.payload)
        if answer is None or answer.get("transaction") != self._transaction:
            return  # another sender's
        number, pages = answer.get("page", 1), answer.get("pages", 1)
        if isinstance(number, int) and isinstance(pages, int):
            self._pages.setdefault(number, cast("Answer", answer))
            self._expected = pages
            self._news.set()
