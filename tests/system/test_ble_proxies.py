"""Boards with ESPHome's Bluetooth proxy: the real client of its API, and a server that does as the firmware."""

import asyncio
import contextlib
import json
import logging
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from aioesphomeapi import api_pb2 as pb
from pydantic import SecretStr

from leadsman import ExponentialBackoff
from leadsman.adapters.ble import BleRadio, bthome, esphome_backend, radios
from leadsman.adapters.ble.proxy import Proxy
from leadsman.core.resilience.failure import Failure
from leadsman.errors import DeviceTimeout, DeviceUnavailable, GarbledData, PermanentError, TransientError
from leadsman_rigs.bluez import Scripted
from leadsman_rigs.esphome_board import (
    ACTIVE,
    KEY,
    OTHER_KEY,
    RAW,
    Board,
    BoardDevice,
    advertise,
    number_of,
    of_service,
    packet,
)
from leadsman_rigs.processes import Process

ADDRESS, OTHER = "F0:11:22:33:44:55", "F0:11:22:33:44:66"
PAGE = Path("docs/how-to/bluetooth.md")
WARM = packet(*of_service({"fcd2": bytes.fromhex("4002ca09")}))
SEALED = packet(*of_service({"fcd2": bytes.fromhex("41a47266c95f730011223378237214")}))
COLD = packet(*of_service({"fcd2": bytes.fromhex("40020000")}))


@pytest.fixture(autouse=True)
def quick(monkeypatch):
    """A board is given up within seconds, and tried again within one."""
    monkeypatch.setattr(radios, "START_TIMEOUT", 2.0)
    monkeypatch.setattr(radios, "WAITS", ExponentialBackoff(0.2, 0.4))
    monkeypatch.setattr(esphome_backend, "ANSWER_TIMEOUT", 1.0)


@pytest.fixture
def run(caplog):
    """Runs a scenario, within a minute. Afterwards the log has no traceback."""

    def run(scenario):
        async def watched():
            async with asyncio.timeout(60):
                await scenario()

        asyncio.run(watched())
        assert [record for record in caplog.records if record.exc_info] == []

    return run


def proxy(board, key=None):
    key = board.key if key is None else key
    return Proxy(host="127.0.0.1", port=board.port, key=None if key is None else SecretStr(key))


def radio_of(*boards, **options):
    options = {"local": False, "find": "5s", "connect": "5s", "timeout": "5s"} | options
    return BleRadio(proxies=[each if isinstance(each, Proxy) else proxy(each) for each in boards], **options)


@contextlib.asynccontextmanager
async def listening(radio, **conditions):
    heard = []

    async def listen():
        async for each in radio.advertisements(**conditions):
            heard.append(each)

    task = asyncio.create_task(listen())
    try:
        yield heard
    finally:
        task.cancel()
        await asyncio.wait([task])


async def until(true):
    while not true():
        await asyncio.sleep(0.005)


def state_of(radio, board):
    return radio.health[f"radio 127.0.0.1:{board.port}"]


async def working(radio, *boards):
    await until(lambda: all(state_of(radio, board).startswith("hears") for board in boards))


def test_what_two_boards_and_an_adapter_hear_of_a_device_is_one(run, air):
    said = {bthome.SERVICE: bytes.fromhex("4002ca09")}
    air.place(Scripted(ADDRESS, "sensor", {"181a": {}}, service_data=said)).rssi = -90

    async def scenario():
        async with Board(key=KEY) as attic, Board() as cellar:
            attic.devices[ADDRESS] = cellar.devices[ADDRESS] = BoardDevice({})
            async with radio_of(attic, cellar, local=True) as radio, listening(radio, address=ADDRESS) as heard:
                await working(radio, attic)
                await working(radio, cellar)
                await until(lambda: len(heard) > 3)  # the adapter hears it all the time
                before = len(heard)
                for _ in range(20):
                    attic.hear(ADDRESS, WARM, -50)
                    cellar.hear(ADDRESS, WARM, -70)
                    await asyncio.sleep(0.01)
                await until(lambda: heard[-1].rssi == -50)
                assert {bthome.decode(each.service_data[bthome.SERVICE])["temperature"] for each in heard} == {25.06}
                assert len(heard) - before < 20
                assert radio.health["radio this machine"] == "hears 1 device"

    run(scenario)


@pytest.mark.parametrize(
    ("of_board", "of_proxy", "error", "message"),
    [
        (KEY, OTHER_KEY, PermanentError, "has another key; copy that in its YAML"),
        (KEY, "", PermanentError, "encrypts; set its key"),
        (None, KEY, PermanentError, "does not encrypt; leave out its key"),
    ],
)
def test_a_wrong_key_is_a_named_error(run, caplog, of_board, of_proxy, error, message):
    async def scenario():
        async with Board(key=of_board) as board, Board() as cellar:
            wrong = Proxy(host="127.0.0.1", port=board.port, key=SecretStr(of_proxy) if of_proxy else None)
            async with radio_of(wrong) as radio:
                with pytest.raises(error, match=message):
                    await radio.probe()
            async with radio_of(wrong, cellar) as radio, listening(radio) as heard:
                await working(radio, cellar)
                await until(lambda: message in state_of(radio, board))
                cellar.hear(ADDRESS, WARM)
                await until(lambda: heard)
                board.key = of_proxy or None  # as if somebody corrected it
                await until(lambda: state_of(radio, board).startswith("hears"))

    run(scenario)
    assert not any(KEY in line or OTHER_KEY in line for line in caplog.messages)
    assert sum(message in line for line in caplog.messages) == 2, "one of each radio"


def test_a_board_without_proxy_or_with_an_old_one_says_what_to_change(run):
    async def scenario():
        for features, message in ((0, "has no bluetooth_proxy"), (ACTIVE, "is too old")):
            async with Board(features=features) as board, radio_of(board) as radio:
                with pytest.raises(PermanentError, match=message):
                    await radio.probe()
        async with Board(features=RAW) as board, radio_of(board) as radio, listening(radio) as heard:
            await working(radio, board)
            board.hear(ADDRESS, WARM)
            await until(lambda: heard)
            with pytest.raises(DeviceUnavailable, match="makes no connections; set `active: true`"):
                await radio.read(ADDRESS, "2a6e")

    run(scenario)


def test_a_board_that_is_away_or_has_no_name_is_a_named_error(run):
    async def scenario():
        async with Board() as board:
            away = proxy(board)
        nowhere = Proxy(host="nowhere.invalid")
        async with radio_of(away, nowhere) as radio:
            with pytest.raises(DeviceUnavailable, match="check the host.*; nowhere.invalid has no address") as error:
                await radio.probe()
        assert "\n" not in str(error.value)
        assert "AddrInfo" not in str(error.value)

    run(scenario)


def test_a_board_that_answers_nothing_is_a_timeout_and_delays_no_other(run):
    async def scenario():
        async with Board() as silent, Board() as cellar:
            silent.hangs = True
            async with radio_of(silent, cellar) as radio, listening(radio) as heard:
                await working(radio, cellar)
                cellar.hear(ADDRESS, WARM)
                await until(lambda: heard)
                await until(lambda: "did not answer within 2s" in state_of(radio, silent))
                silent.hangs = False
                await silent.listened_to()
            async with radio_of(silent) as radio:
                silent.hangs = True
                with pytest.raises(DeviceTimeout, match="did not answer within"):
                    await radio.probe()

    run(scenario)


@pytest.mark.parametrize(
    "garbage",
    [
        b"HTTP/1.1 400 Bad Request\r\n\r\n",
        b"\x00\xff\xff\xff\xff\xff\xff",
        b"\x00\x02\x02\xff\xff",
        b"\x01\x00\x05hello",
        b"\x00" * 4000,
        bytes(range(256)) * 40,
    ],
)
@pytest.mark.parametrize("key", [None, KEY])
def test_what_speaks_something_else_is_a_named_error(run, garbage, key):
    async def scenario():
        async with Board(key=key) as board, Board() as cellar:
            board.garbage = garbage
            async with radio_of(board) as radio:
                with pytest.raises((GarbledData, PermanentError, DeviceUnavailable)) as error:
                    await radio.probe()
                assert f"127.0.0.1:{board.port}" in str(error.value)
            async with radio_of(board, cellar) as radio, listening(radio) as heard:
                await working(radio, cellar)
                cellar.hear(ADDRESS, WARM)
                await until(lambda: heard)
                board.garbage = None
                await board.listened_to()

    run(scenario)


def test_garbage_from_a_board_that_worked_costs_its_connection_only(run):
    async def scenario():
        async with Board() as board, radio_of(board, find="20s") as radio, listening(radio) as heard:
            for garbage in (b"\x00\x02\x5d\xff\xff", b"\x07garbage", b"\x00\x04\x7e\xff\xff\xff\xff"):
                await board.listened_to()
                client = board.subscriber
                client._writer.write(garbage)
                await until(lambda client=client: board.subscriber is not client)
            await working(radio, board)
            for data in (b"\xff" * 62, b"", b"\x1e\xff", bytes(2000)):
                board.hear(ADDRESS, data)
            odd = [pb.BluetoothLERawAdvertisement(address=2**64 - 1, rssi=-(2**31), data=WARM)]
            board.subscriber.send(pb.BluetoothLERawAdvertisementsResponse(advertisements=odd))
            board.subscriber.send(pb.CameraImageResponse(key=1, data=b"x"))
            board.hear(OTHER, WARM)
            await until(lambda: heard and heard[-1].address == OTHER)
            assert {each.address for each in heard} == {ADDRESS, OTHER}

    run(scenario)


def test_a_board_serves_one_client_and_the_next_one_when_that_leaves(run):
    async def scenario():
        async with Board() as board:
            async with radio_of(board) as first, radio_of(board) as second, listening(first):
                await board.listened_to()
                with pytest.raises(DeviceUnavailable, match="serves another client, such as Home Assistant"):
                    await second.probe()
            async with radio_of(board) as third, listening(third) as heard:
                await working(third, board)
                board.hear(ADDRESS, WARM)
                await until(lambda: heard)

    run(scenario)


def test_a_board_that_restarts_in_the_middle_is_heard_again(run):
    async def scenario():
        board = Board(key=KEY)
        async with board, radio_of(board) as radio, listening(radio) as heard:
            for number in range(3):
                await working(radio, board)
                board.hear(ADDRESS, packet((0xFF, bytes((1, 0, number)))))
                await until(lambda number=number: len(heard) == number + 1)
                await board.__aexit__()
                await until(lambda: state_of(radio, board).startswith("DeviceUnavailable"))
                await board.__aenter__()
        assert board.connections >= 3

    run(scenario)


def test_a_board_that_hangs_is_noticed_and_heard_again_when_it_goes_on(run, monkeypatch):
    monkeypatch.setattr(esphome_backend, "KEEP_ALIVE", 0.2)

    async def scenario():
        command = [sys.executable, "-m", "leadsman_rigs.esphome_board", "0"]
        environment = {"PYTHONPATH": ":".join(filter(None, sys.path))}
        process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment)
        try:
            board = Board()
            board.port = int(process.stdout.readline())
            async with radio_of(board) as radio, listening(radio) as heard:
                await until(lambda: heard)
                process.send_signal(signal.SIGSTOP)
                await until(lambda: not state_of(radio, board).startswith("hears"))
                assert "hung up: Ping response not received" in state_of(radio, board)
                await until(lambda: re.search("no answer|did not answer", state_of(radio, board)))
                before = len(heard)
                process.send_signal(signal.SIGCONT)
                await until(lambda: len(heard) > before)
        finally:
            process.kill()
            process.communicate()

    run(scenario)


@contextlib.asynccontextmanager
async def hearing(*boards, device=None, **options):
    """A radio whose boards hear a device all the time; the last board hears it best."""
    async with contextlib.AsyncExitStack() as stack:
        tasks = []
        for number, board in enumerate(boards):
            await stack.enter_async_context(board)
            board.devices[ADDRESS] = device or BoardDevice({"2a6e": b"\x66\x08", "2a19": 0x02, "2a6f": 0x0E})
            tasks.append(asyncio.create_task(advertise(board, ADDRESS, WARM, -90 + 10 * number)))
        radio = await stack.enter_async_context(radio_of(*boards, **options))
        async with listening(radio, address=ADDRESS):
            for board in boards:
                await until(lambda board=board: state_of(radio, board) == "hears 1 device")
            yield radio
        for task in tasks:
            task.cancel()


def test_att_errors_of_a_device_are_those_of_an_adapter(run):
    async def scenario():
        board = Board(key=KEY)
        async with hearing(board) as radio, radio.session(ADDRESS) as device:
            with pytest.raises(PermanentError, match="Read not permitted") as permanent:
                await device.read("2a19")
            with pytest.raises(TransientError, match="Unlikely error") as passing:
                await device.read("2a6f")
            assert [Failure(each.value).get("gatt-code") for each in (permanent, passing)] == [2, 14]
            await device.write("2a6e", b"\x01")
            await device.write("2a6e", b"\x02", response=False)
            await until(lambda: len(board.devices[ADDRESS].written) == 2)
            assert [written[1:] for written in board.devices[ADDRESS].written] == [(b"\x01", True), (b"\x02", False)]
            board.devices[ADDRESS].values[10] = None
            with pytest.raises(DeviceTimeout, match="reading 2a6e of .* took longer than 200ms"):
                await device.read("2a6e", "200ms")

    run(scenario)


def test_the_next_board_connects_if_the_best_one_has_no_free_connection(run):
    async def scenario():
        cellar, attic = Board(), Board(slots=1)
        async with hearing(cellar, attic, connections=3) as radio:
            async with radio.session(ADDRESS):
                assert (len(cellar.connected), len(attic.connected)) == (0, 1)
            await until(lambda: not attic.connected)
            attic.slots, attic.connected = 1, {number_of(OTHER)}
            for _ in range(2):  # the board refuses, and then it has said how many are free
                async with radio.session(ADDRESS):
                    assert cellar.connected == {number_of(ADDRESS)}

    run(scenario)


def test_a_device_that_does_not_connect_gives_its_place_at_the_board_back(run):
    async def scenario():
        board = Board(slots=1)
        async with hearing(board, connect="500ms") as radio:
            board.devices[ADDRESS].hangs = True
            with pytest.raises(DeviceTimeout):
                await radio.read(ADDRESS, "2a6e")
            board.devices[ADDRESS].hangs = False
            assert await radio.read(ADDRESS, "2a6e") == [b"\x66\x08"]
            await until(lambda: not board.connected)

    run(scenario)


def test_a_board_that_dies_in_a_session_is_a_device_that_hung_up_and_is_read_again(run):
    async def scenario():
        board = Board(key=KEY)
        async with hearing(board) as radio:
            async with radio.session(ADDRESS) as device:
                notified = asyncio.create_task(anext(device.notifications("2a6e")))
                await until(lambda: board.devices[ADDRESS].switched)
                await board.__aexit__()
                with pytest.raises(DeviceUnavailable, match="hung up"):
                    await notified
                with pytest.raises(DeviceUnavailable, match="hung up"):
                    await device.read("2a6e")
            await board.__aenter__()
            await until(lambda: state_of(radio, board) == "hears 1 device")
            assert await radio.read(ADDRESS, "2a6e") == [b"\x66\x08"]

    run(scenario)


def test_devices_stay_connected_while_nobody_listens(run):
    async def scenario():
        board = Board()
        async with board, radio_of(board) as radio:
            board.devices[ADDRESS] = BoardDevice({"2a6e": b"\x66\x08"})
            advertising = asyncio.create_task(advertise(board, ADDRESS, WARM))
            async with radio.session(ADDRESS) as device:
                await radio.probe()
                assert radio.health["scanning"] is False
                assert await device.read("2a6e") == b"\x66\x08"
            assert await radio.read(ADDRESS, "2a6e") == [b"\x66\x08"]
            assert board.connections == 1
            advertising.cancel()

    run(scenario)


def test_the_app_of_the_page_publishes_what_its_boards_hear(tmp_path, mosquitto, listen, monkeypatch):
    (code,) = [each for each in re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL) if "Proxy" in each]
    assert sum(bool(line) for line in code.splitlines()) < 30
    (tmp_path / "climate.py").write_text(code + "\n\nif __name__ == '__main__':\n    app.run()\n")
    listener = listen(mosquitto.port)

    async def scenario():
        async with Board(key=KEY) as attic, Board() as garden:
            (tmp_path / "leadsman.toml").write_text(
                f'[proxies.attic]\nhost = "127.0.0.1"\nport = {attic.port}\nkey = "{KEY}"\n'
                f'[proxies.garden]\nhost = "localhost"\nport = {garden.port}\nkey = "{OTHER_KEY}"\n'
            )
            environment = {"MQTT__URL": mosquitto.url, "LEADSMAN_CONFIG": str(tmp_path / "leadsman.toml")}
            app = Process(
                [sys.executable, str(tmp_path / "climate.py")],
                tmp_path / "log",
                XDG_STATE_HOME=str(tmp_path),
                **environment,
            )
            try:
                await attic.listened_to()
                while not listener.on(f"climate/{ADDRESS}/state"):
                    attic.hear(ADDRESS, WARM)
                    attic.hear(OTHER, SEALED)  # of a neighbour
                    await asyncio.sleep(0.05)
                command = [
                    sys.executable,
                    "-m",
                    "leadsman",
                    "inspect",
                    "--prefix",
                    "climate",
                    "--mqtt",
                    mosquitto.url,
                    "--json",
                ]
                asked = await asyncio.create_subprocess_exec(*command, stdout=subprocess.PIPE)
                shown, _ = await asked.communicate()
            finally:
                await asyncio.to_thread(app.end)
            return app.log, shown.decode()

    log, shown = asyncio.run(scenario())
    assert json.loads(listener.on(f"climate/{ADDRESS}/state")[0].payload)["temperature"] == 25.06
    assert "does not encrypt; leave out its key" in log
    assert KEY not in log + shown
    assert "hears 2 devices" in shown
    assert "does not encrypt" in shown
    assert "sensors: failing" not in log


@pytest.mark.parametrize("exc_info", [False, None, True])
def test_what_asyncio_logs_is_logged_beside_a_proxy(exc_info, caplog):
    logging.getLogger("asyncio").error("Task was destroyed but it is pending!", exc_info=exc_info)

    assert "Task was destroyed" in caplog.text
