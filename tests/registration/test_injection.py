import functools
from collections.abc import AsyncIterator
from typing import Annotated, Any, NoReturn

import pytest

from leadsman import App
from leadsman.adapters.managed import managed_adapters
from leadsman.errors import DeviceUnavailable, InvalidType, InvalidValue
from leadsman.registration.injection import bound, check_result, is_async, needs_of


class Port:
    async def __aenter__(self):
        return self

    async def __aexit__(self, *exc_info):
        return None


class Radio(Port):
    pass


def plain(): ...
async def with_port(port: Port): ...
async def with_radio(radio: Radio): ...
async def with_both(radio: Radio, port: Annotated[Port, "boiler"], extra: int = 3): ...


def open_slots(adapters):
    slots = managed_adapters(adapters)
    for slot in slots:
        slot._opened, slot._is_open = slot.adapter, True
    return slots


def test_a_parameter_is_filled_by_its_type():
    port = Port()

    assert bound(lambda port: port, needs_of(with_port, open_slots((port,))))() is port


def test_a_subclass_fits():
    radio = Radio()

    assert needs_of(with_port, managed_adapters((radio,)))[0][1].adapter is radio


def test_a_name_chooses_between_two_of_one_type():
    boiler, meter, radio = Port(), Port(), Radio()
    slots = managed_adapters({"boiler": boiler, "meter": meter, "radio": radio})

    assert [(name, slot.adapter) for name, slot in needs_of(with_both, slots)] == [("radio", radio), ("port", boiler)]


def test_two_of_one_type_without_a_name_is_refused_with_what_to_write():
    with pytest.raises(InvalidValue, match=r"write Annotated\[Port, 'a'\]"):
        needs_of(with_port, managed_adapters({"a": Port(), "b": Port()}))
    with pytest.raises(InvalidValue, match="name them"):
        needs_of(with_port, managed_adapters((Port(), Port())))


def test_an_adapter_that_is_not_there_is_refused_with_what_is():
    with pytest.raises(
        InvalidValue, match=r"asks for Radio, and there is: Port 'a'; add an adapter to App\(adapters=…\)"
    ):
        needs_of(with_radio, managed_adapters({"a": Port()}))


def test_a_parameter_without_a_type_is_refused():
    async def handler(port): ...

    with pytest.raises(InvalidType, match="port: SerialPort"):
        needs_of(handler, ())


def test_an_annotation_that_cannot_be_read_is_refused():
    async def handler(port: "Nowhere"): ...  # noqa: F821

    with pytest.raises(InvalidType, match="Nowhere"):
        needs_of(handler, ())


@pytest.mark.parametrize("handler", [lambda *args: 0, lambda **words: 0])
def test_open_ended_parameters_are_refused(handler):
    with pytest.raises(InvalidType, match="one by one"):
        needs_of(handler, ())


def test_methods_partials_and_callable_objects_are_handlers():
    class Reader:
        async def read(self, port: Port): ...

        async def __call__(self, port: Port): ...

    slots = managed_adapters((Port(),))
    for handler in (Reader().read, Reader(), functools.partial(with_both, extra=4)):
        assert is_async(handler)
    assert needs_of(Reader().read, slots)[0][0] == "port"
    assert needs_of(Reader(), slots)[0][0] == "port"
    assert not is_async(plain)


def test_generators_classes_and_things_that_cannot_be_called_are_refused():
    async def pushes():
        yield {}

    def yields():
        yield {}

    for handler in (pushes, yields, Port, 5, None):
        with pytest.raises(InvalidType, match="handler"):
            is_async(handler)


def test_a_call_before_the_adapter_is_open_says_so():
    needs = needs_of(with_port, managed_adapters((Port(),)))

    with pytest.raises(DeviceUnavailable, match="Port is not open: it is still opening"):
        bound(with_port, needs)()


@pytest.mark.parametrize("adapters", [(Port,), (5,), 5, "port", {1: Port()}])
def test_what_is_no_adapter_is_refused(adapters):
    with pytest.raises(InvalidType):
        managed_adapters(adapters)


def test_one_adapter_given_twice_is_refused():
    port = Port()

    with pytest.raises(InvalidValue, match="twice"):
        managed_adapters((port, port))


@pytest.mark.parametrize(
    "kind", [bytes, list[float], tuple[int, int], list[float] | None, Annotated[list[int], "volts"]]
)
def test_a_handler_annotated_to_return_what_is_no_reading_is_told_what_to_return(kind):
    async def read(): ...

    read.__annotations__["return"] = kind

    with pytest.raises(InvalidType, match=r"read is annotated to return .*; return a dict such as \{'value': 21.5\}"):
        check_result(read)
    with pytest.raises(InvalidType, match="telemetry 'd': the handler .*read"):
        App("app").add_telemetry("d", read, interval=60)


@pytest.mark.parametrize("kind", [float, int | None, str, bool, Annotated[float, "volts"]])
def test_one_value_is_a_reading_only_where_it_may_be(kind):
    async def read(): ...

    read.__annotations__["return"] = kind

    check_result(read, one_value=True)
    with pytest.raises(InvalidType, match=r"read is annotated to return .*; return a dict such as \{'value': 21.5\}"):
        check_result(read)
    with pytest.raises(InvalidType, match="command 'd': the handler .*read"):
        App("app").add_command("d", read)


def test_what_a_source_yields_is_looked_at_too():
    async def numbers() -> AsyncIterator[list[float]]:
        yield [1.0]

    with pytest.raises(InvalidType, match="source 's': .*numbers is annotated to return list"):
        App("app").add_source("s", numbers)


@pytest.mark.parametrize(
    "kind", [dict[str, float], None, Any, "Unknown", "no expression", dict[str, float] | None, object, NoReturn]
)
def test_other_annotations_of_results_are_let_through(kind):
    async def read(): ...

    read.__annotations__["return"] = kind

    check_result(read)
