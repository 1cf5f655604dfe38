"""Several devices on one line, some of them silent, in whole apps in virtual time."""

import asyncio
import itertools
from collections import Counter, defaultdict

import pytest

from leadsman import App, CircuitBreaker
from leadsman.adapters.modbus import Modbus, Register, Table
from leadsman.adapters.modbus.framing import ModbusTcpFramer
from leadsman.adapters.serial.port import SerialPort
from leadsman.errors import DeviceTimeout
from leadsman.testing import Harness, ModbusTwin, ModbusUnit, SerialTwin

TABLE = Table({"v": Register(0, "uint16")})
ANSWER = 0.01


class Bus:
    """An adapter of somebody's own, with a lock as anybody writes it."""

    def __init__(self, dead):
        self._dead = dead
        self._lock = asyncio.Lock()
        self.looked = Counter()

    async def __aenter__(self):
        return self

    async def __aexit__(self, *exc_info): ...

    async def ask(self, unit):
        async with self._lock:
            began = asyncio.get_running_loop().time()
            try:
                await asyncio.sleep(1.0 if unit in self._dead else ANSWER)
            finally:
                self.looked[unit] += asyncio.get_running_loop().time() - began
            if unit in self._dead:
                raise DeviceTimeout("no answer")
            return {"v": unit}


class House:
    """An app with ten units on one line, `dead` of them from the start; `readings` has the times of each."""

    def __init__(self, kind, dead, interval, **options):
        self.dead, self.interval = set(dead), interval
        self.readings, self.errors = defaultdict(list), Counter()
        self.adapter, wanted, ask = getattr(self, kind)()
        self.app = App("house", adapters=(self.adapter,))

        def register(unit):
            async def poll(bus: wanted):
                reading = await ask(bus, unit)
                self.readings[unit].append(asyncio.get_running_loop().time())
                return reading

            self.app.add_telemetry(f"u{unit}", poll, interval=interval, **options)

        for unit in range(10):
            register(unit)

    def rtu(self, framer=None):
        self.units = {unit + 1: ModbusUnit.of(TABLE, {"v": unit}) for unit in range(10)}
        for unit in self.dead:
            self.units[unit + 1].silent = True
        return ModbusTwin(self.units, framer=framer), Modbus, lambda bus, unit: bus.read(unit + 1, TABLE)

    def tcp(self):
        return self.rtu(ModbusTcpFramer())

    def serial(self):
        async def ask(port, unit):
            return {"v": int(await port.request(b"%d\n" % unit))}

        return SerialTwin(lambda data: b"" if int(data) in self.dead else data, timeout=1.0), SerialPort, ask

    def own(self):
        return Bus(self.dead), Bus, lambda bus, unit: bus.ask(unit)

    def revive(self):
        for unit in self.dead:
            if hasattr(self, "units"):
                self.units[unit + 1].silent = False
        self.dead.clear()

    def run(self, *spans):
        """Returns the harness, after these seconds; the dead units are back after the first of several."""
        with Harness(self.app) as harness:
            for number, seconds in enumerate(spans):
                if number:
                    self.revive()
                harness.run(seconds)
            self.failed = {unit for unit in range(10) if harness.errors(f"u{unit}")}
        return self


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kind", "interval", "dead", "options"),
    [
        ("rtu", 1, range(9), {}),
        ("tcp", 1, range(9), {"retry": 3}),
        ("serial", 1, range(9), {"retry": 2, "circuit_breaker": CircuitBreaker(3)}),
        ("own", 1, range(9), {}),
        ("own", 1, {4}, {"retry": 3}),
        ("rtu", 5, range(5), {"retry": 2, "circuit_breaker": CircuitBreaker(3)}),
        ("own", 5, range(5), {"circuit_breaker": CircuitBreaker(3, shared="bus")}),
        ("tcp", 30, {0, 9}, {}),
    ],
)
def test_healthy_units_do_not_pay_for_dead_ones(kind, interval, dead, options):
    house = House(kind, dead, interval, **options).run(40 * interval)

    for unit in set(range(10)) - set(dead):
        found = house.readings[unit]
        assert len(found) >= 37
        assert max(at % interval for at in found[2:]) <= 10 * ANSWER + 0.05
    assert house.failed <= set(dead)


@pytest.mark.parametrize("kind", ["rtu", "own"])
@pytest.mark.parametrize("dead", [{3}, set(range(9))], ids=["one", "nine"])
def test_a_unit_that_is_back_is_read_within_two_of_its_intervals(kind, dead):
    house = House(kind, dead, 5).run(50, 10.1)

    assert all(house.readings[unit] for unit in dead)


def test_looks_at_dead_units_take_a_fifth_of_the_line_at_the_most():
    house = House("own", range(9), 1).run(60)

    assert sum(house.adapter.looked[unit] for unit in range(9)) <= 0.2 * 60 + 9 * 0.3


def test_a_wait_for_the_line_is_no_time_of_the_call():
    app, calls = App("house", adapters=(Bus(set()),)), []

    def register(name, seconds):
        async def poll(bus: Bus):
            async with bus._lock:
                await asyncio.sleep(seconds)
                calls.append(name)
            return {"v": 1}

        app.add_telemetry(name, poll, interval="1m", timeout=11, circuit_breaker=CircuitBreaker(1))

    names = "abcdef"  # the last one waits for 15 s
    for name in names:
        register(name, 3)
    with Harness(app) as harness:
        harness.run("50s")

        assert calls == [*names]
        assert {harness.statuses(name)[-1] for name in names} == {"ok"}


@pytest.mark.slow
@pytest.mark.parametrize("numbered", [False, True], ids=["number 0", "its number"])
def test_a_late_answer_to_a_request_that_was_cut_is_no_value_of_another_register(numbered):
    """A gateway that answers with the number 0, as some do, and a unit that was dead and is now late."""
    table, lags, began = Table({f"r{n}": Register(n) for n in range(3)}, gap=0), itertools.cycle(range(3, 20)), []

    def device(request):
        unit, register = request[6], request[9]
        answer = (request[:2] if numbered else b"\0\0") + bytes((0, 0, 0, 5, unit, 3, 2, unit, register))
        if unit == 2:
            return answer
        loop = asyncio.get_running_loop()
        if loop.time() - began[0] > 20:
            loop.call_later(next(lags) / 10, late, answer, twin._connection)
        return b""

    def late(answer, connection):
        if twin._connection is connection:  # else it goes to a socket that is closed
            twin.send(answer)

    twin = SerialTwin(device, framer=ModbusTcpFramer(), timeout=1.0)
    twin.url = "socket://gateway:502"
    app, wrong, read = App("house", adapters=(Modbus(twin),)), [], Counter()

    def register(unit, name):
        async def poll(modbus: Modbus):
            began.append(asyncio.get_running_loop().time())
            reading = await modbus.read(unit, table, [name])
            read[unit] += 1
            if reading != {name: unit << 8 | int(name[1])}:
                wrong.append((unit, reading))
            return reading

        app.add_telemetry(f"u{unit}-{name}", poll, interval=1)

    for unit in (1, 2):
        for name in table.registers:
            register(unit, name)
    with Harness(app) as harness:
        harness.run(300)

    assert wrong == []
    assert read[1] > 10
    assert read[2] > 300
