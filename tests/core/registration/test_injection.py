"""Which adapter a handler gets, and which handlers and adapters are refused."""

import asyncio
import functools
from collections.abc import AsyncIterator
from typing import Annotated, Any, NoReturn

import pytest

from leadsman import App, Content
from leadsman.errors import InvalidType, InvalidValue


class Port:
    async def __aenter__(self):
        return self

    async def __aexit__(self, *exc_info):
        return None


class Radio(Port):
    pass


async def with_port(port: Port): ...
async def with_radio(radio: Radio): ...


def registered(handler, adapters=()):
    app = App("app", adapters=adapters)
    app.add_telemetry("d", handler, interval=60)
    return app


@pytest.fixture
def given(harness):
    """Runs a handler, which shows what it is given, in an app with these adapters."""
    shown = []

    def run(handler, adapters):
        harness(registered(handler, adapters)).run(5)
        return shown.pop()

    run.show = shown.append
    return run


def test_a_parameter_is_filled_by_its_type(given):
    async def read(port: Port):
        given.show(port)

    port = Port()
    assert given(read, (port,)) is port


def test_a_subclass_fits(given):
    async def read(port: Port):
        given.show(port)

    radio = Radio()
    assert given(read, (radio,)) is radio


def test_a_name_chooses_between_two_of_one_type(given):
    async def read(radio: Radio, port: Annotated[Port, "boiler"], extra: int = 3):
        given.show((radio, port, extra))

    boiler, meter, radio = Port(), Port(), Radio()
    assert given(read, {"boiler": boiler, "meter": meter, "radio": radio}) == (radio, boiler, 3)


def test_two_of_one_type_without_a_name_is_refused_with_what_to_write():
    with pytest.raises(InvalidValue, match=r"write Annotated\[Port, 'a'\]"):
        registered(with_port, {"a": Port(), "b": Port()})
    with pytest.raises(InvalidValue, match="name them"):
        registered(with_port, (Port(), Port()))


def test_an_adapter_that_is_not_there_is_refused_with_what_is():
    with pytest.raises(
        InvalidValue, match=r"asks for Radio, and there is: Context, Port 'a'; add an adapter to App\(adapters=…\)"
    ):
        registered(with_radio, {"a": Port()})


def test_a_parameter_without_a_type_is_refused():
    async def handler(port): ...

    with pytest.raises(InvalidType, match="port: SerialPort"):
        registered(handler)


def test_an_annotation_that_cannot_be_read_is_refused():
    async def handler(port: "Nowhere"): ...  # noqa: F821  # the mistake

    with pytest.raises(InvalidType, match="Nowhere"):
        registered(handler)


@pytest.mark.parametrize("handler", [lambda *args: 0, lambda **words: 0])
def test_open_ended_parameters_are_refused(handler):
    with pytest.raises(InvalidType, match="one by one"):
        registered(handler)


def test_methods_partials_and_callable_objects_are_handlers(given):
    class Reader:
        async def read(self, port: Port):
            given.show(("read", port))

        async def __call__(self, port: Port):
            given.show(("called", port))

    async def read(port: Port, extra: int):
        given.show((extra, port))

    port = Port()
    assert given(Reader().read, (port,)) == ("read", port)
    assert given(Reader(), (port,)) == ("called", port)
    assert given(functools.partial(read, extra=4), (port,)) == (4, port)


def test_generators_classes_and_things_that_cannot_be_called_are_refused():
    async def pushes():
        yield {}

    def yields():
        yield {}

    for handler in (pushes, yields, Port, 5, None):
        with pytest.raises(InvalidType, match="handler"):
            registered(handler)


def test_a_call_before_the_adapter_is_open_says_so(harness):
    class Slow(Port):
        async def __aenter__(self):
            await asyncio.sleep(3600)
            return self

    running = harness(registered(with_port, (Slow(),)))
    running.run(5)

    assert "Slow is not open: it is still opening" in running.errors("d")[0]["message"]


@pytest.mark.parametrize("adapters", [(Port,), (5,), 5, "port", {1: Port()}])
def test_what_is_no_adapter_is_refused(adapters):
    with pytest.raises(InvalidType):
        registered(with_port, adapters)


def test_one_adapter_given_twice_is_refused():
    port = Port()

    with pytest.raises(InvalidValue, match="twice"):
        registered(with_port, (port, port))


@pytest.mark.parametrize(
    "kind", [complex, list[float], tuple[int, int], list[float] | None, Annotated[list[int], "volts"]]
)
def test_a_handler_annotated_to_return_what_is_no_reading_is_told_what_to_return(kind):
    async def read(): ...

    read.__annotations__["return"] = kind

    told = r"telemetry 'd': the handler .*read is annotated to return .*; return a dict such as \{'value': 21.5\}"
    with pytest.raises(InvalidType, match=told):
        registered(read)


@pytest.mark.parametrize("kind", [float, int | None, str, bool, Annotated[float, "volts"]])
def test_one_value_is_a_reading_only_where_it_may_be(kind):
    async def read(): ...

    read.__annotations__["return"] = kind

    registered(read)
    told = r"command 'd': the handler .*read is annotated to return .*; return a dict such as \{'value': 21.5\}"
    with pytest.raises(InvalidType, match=told):
        App("app").add_command("d", read)


def test_what_a_source_yields_is_looked_at_too():
    async def numbers() -> AsyncIterator[list[float]]:
        yield [1.0]

    with pytest.raises(InvalidType, match="source 's': .*numbers is annotated to return list"):
        App("app").add_source("s", numbers)


def test_what_stands_beside_the_stream_of_a_source_stands_beside_what_it_yields():
    async def pictures() -> Annotated[AsyncIterator[bytes], Content("image/jpeg")]:
        yield b"1"

    async def numbers() -> Annotated[AsyncIterator[float], "of the street"]:
        yield 1.0

    app = App("app")
    app.add_source("camera", pictures)
    app.add_source("meter", numbers)

    assert app.sources["camera"].content is not None
    assert app.sources["meter"].field == "value"


def test_a_source_may_leave_open_what_it_yields():
    async def numbers() -> AsyncIterator:
        yield {"t": 1.0}

    app = App("app")
    app.add_source("s", numbers)

    assert app.sources["s"].validate_result is None


@pytest.mark.parametrize(
    "kind", [dict[str, float], None, Any, "Unknown", "no expression", dict[str, float] | None, object, NoReturn]
)
def test_other_annotations_of_results_are_let_through(kind):
    async def read(): ...

    read.__annotations__["return"] = kind

    assert "d" in registered(read).telemetries
