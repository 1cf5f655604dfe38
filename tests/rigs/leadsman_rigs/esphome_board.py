"""An ESPHome board with `bluetooth_proxy`: a server of the native API with the messages of aioesphomeapi, in plaintext
or with Noise, that does as the firmware does. ``python -m leadsman_rigs.esphome_board PORT`` is one in a process of its
own, which hears one device."""

# ruff: noqa: N802  # a method is named after the message that it takes

import asyncio
import base64
import contextlib
import sys
import uuid as uuids

from aioesphomeapi import api_pb2 as pb
from aioesphomeapi.core import MESSAGE_TYPE_TO_PROTO
from cryptography.exceptions import InvalidTag
from noise.connection import NoiseConnection
from noise.exceptions import NoiseInvalidMessage

from leadsman.adapters.ble.gatt import uuid_of

NUMBERS = {kind: number for number, kind in MESSAGE_TYPE_TO_PROTO.items()}
PASSIVE, ACTIVE, CACHING, RAW, STATE = 0x01, 0x02, 0x04, 0x20, 0x40
FEATURES = PASSIVE | ACTIVE | CACHING | RAW | STATE
KEY = base64.b64encode(bytes(range(32))).decode()
OTHER_KEY = base64.b64encode(bytes(32)[:-1] + b"\x01").decode()
PROPERTIES = 0x1A
"""Of each characteristic: read, write, notify."""
CCCD = "00002902-0000-1000-8000-00805f9b34fb"


def number_of(address):
    return int(address.replace(":", ""), 16)


def packet(*structures):
    """The bytes of a packet in the air: pairs of a type and a value."""
    return b"".join(bytes((len(value) + 1, kind)) + value for kind, value in structures)


def of_service(data):
    """The structures of service data, by short UUID."""
    return [(0x16, bytes.fromhex(uuid)[::-1] + value) for uuid, value in (data or {}).items()]


def of_maker(data):
    """The structures of manufacturer data."""
    return [(0xFF, number.to_bytes(2, "little") + value) for number, value in (data or {}).items()]


class BoardDevice:
    """A device that a board may connect to. `values` by UUID: bytes, an ATT error code, or None for no answer;
    `answers` maps UUIDs to functions that make a notification of what is written."""

    def __init__(self, values, answers=None):
        self.handles = {uuid_of(uuid): 10 * number for number, uuid in enumerate(values, 1)}
        self.values = {self.handles[uuid_of(uuid)]: value for uuid, value in values.items()}
        self.answers = answers or {}
        self.switched = {}
        """What was written to the descriptors that switch notifications, by the handle of the characteristic."""
        self.written = []
        self.refuses = self.hangs = self.silent = False


class Board:
    """Runs inside an ``async with`` block. `key`, `port` and the rest may be changed between two runs.

    Args:
        key: of Noise, in base64; None: plaintext.
        features: as the firmware has them.
        slots: how many devices may be connected at once.
    """

    def __init__(self, key=None, features=FEATURES, slots=3):
        self.key, self.features, self.slots = key, features, slots
        self.port = 0
        self.devices = {}
        """By address, as text."""
        self.connected = set()
        """Numbers of the devices that it is connected to."""
        self.connections = 0
        """How many clients have connected so far."""
        self.garbage = None
        """Bytes to send instead of any answer."""
        self.hangs = False
        """Whether it takes what is sent, and answers nothing."""
        self.subscriber = None
        self._clients = set()

    async def __aenter__(self):
        self.server = await asyncio.start_server(self._serve, "127.0.0.1", self.port)
        self.port = self.server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(self, *exc_info):
        self.server.close()
        for client in tuple(self._clients):
            client.abort()
        while self._clients:
            await asyncio.sleep(0.005)

    async def listened_to(self):
        while self.subscriber is None:
            await asyncio.sleep(0.005)

    def hear(self, address, data, rssi=-60):
        """Hear a packet of a device, and pass it on to the client that it serves."""
        if self.subscriber is not None:
            each = pb.BluetoothLERawAdvertisement(address=number_of(address), rssi=rssi, data=data)
            self.subscriber.send(pb.BluetoothLERawAdvertisementsResponse(advertisements=[each]))

    def notify(self, address, uuid, data):
        handle = self.devices[address].handles[uuid_of(uuid)]
        self.subscriber.send(pb.BluetoothGATTNotifyDataResponse(address=number_of(address), handle=handle, data=data))

    def hang_up(self, address):
        """The device ends the connection."""
        self.connected.discard(number_of(address))
        self.subscriber.send(pb.BluetoothDeviceConnectionResponse(address=number_of(address), error=0x13))

    async def _serve(self, reader, writer):
        client = _Client(self, reader, writer)
        self.connections += 1
        self._clients.add(client)
        try:
            with contextlib.suppress(OSError, asyncio.IncompleteReadError):
                await client.run()
        finally:
            self._clients.discard(client)
            if self.subscriber is client:
                self.subscriber = None
                self.connected.clear()
            writer.close()


class _Client:
    def __init__(self, board, reader, writer):
        self.board, self._reader, self._writer = board, reader, writer
        self._noise = None

    def abort(self):
        self._writer.transport.abort()

    def send(self, message):
        if self.board.hangs:
            return
        data, number = message.SerializeToString(), NUMBERS[type(message)]
        if self._noise is None:
            self._writer.write(b"\x00" + _varint(len(data)) + _varint(number) + data)
        else:
            head = number.to_bytes(2, "big") + len(data).to_bytes(2, "big")
            self._frame(self._noise.encrypt(head + data))

    async def run(self):
        if self.board.garbage is not None:
            await self._reader.read(100)
            self._writer.write(self.board.garbage)
            await asyncio.sleep(0.2)
            return
        if self.board.hangs:
            while await self._reader.read(4096):
                pass
            return
        if self.board.key is not None and not await self._handshake():
            return
        while True:
            number, data = await self._message()
            kind = MESSAGE_TYPE_TO_PROTO[number]
            answer = getattr(self, f"_on_{kind.__name__}", None)
            if answer is not None and not self.board.hangs and answer(kind.FromString(data)):
                await self._writer.drain()
                return

    async def _message(self):
        if self._noise is not None:
            plain = self._noise.decrypt(await self._read_frame())
            return int.from_bytes(plain[:2], "big"), bytes(plain[4:])
        first = await self._reader.readexactly(1)
        if first != b"\x00":
            self._writer.write(b"\x00Bad indicator byte")
            raise asyncio.IncompleteReadError(first, 1)
        size, number = await self._read_varint(), await self._read_varint()
        return number, await self._reader.readexactly(size)

    async def _handshake(self):
        first = await self._reader.readexactly(3)
        if first[:1] != b"\x01":
            self._frame(b"\x01Bad indicator byte")
            return False
        self._frame(b"\x01attic\x00a0b1c2d3e4f5\x00")
        noise = NoiseConnection.from_name(b"Noise_NNpsk0_25519_ChaChaPoly_SHA256")
        noise.set_as_responder()
        noise.set_psks(base64.b64decode(self.board.key))
        noise.set_prologue(b"NoiseAPIInit\x00\x00")
        noise.start_handshake()
        try:
            noise.read_message((await self._read_frame())[1:])
        except (InvalidTag, NoiseInvalidMessage):
            self._frame(b"\x01Handshake MAC failure")
            return False
        self._frame(b"\x00" + bytes(noise.write_message()))
        self._noise = noise
        return True

    def _frame(self, data):
        self._writer.write(b"\x01" + len(data).to_bytes(2, "big") + bytes(data))

    async def _read_frame(self):
        head = await self._reader.readexactly(3)
        return await self._reader.readexactly(int.from_bytes(head[1:], "big"))

    async def _read_varint(self):
        value = shift = 0
        while True:
            byte = (await self._reader.readexactly(1))[0]
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                return value
            shift += 7

    def _on_HelloRequest(self, _):
        self.send(pb.HelloResponse(api_version_major=1, api_version_minor=12, server_info="rig", name="attic"))

    def _on_PingRequest(self, _):
        self.send(pb.PingResponse())

    def _on_DisconnectRequest(self, _):
        self.send(pb.DisconnectResponse())
        return True

    def _on_DeviceInfoRequest(self, _):
        self.send(pb.DeviceInfoResponse(name="attic", bluetooth_proxy_feature_flags=self.board.features))

    def _on_SubscribeBluetoothLEAdvertisementsRequest(self, _):
        if self.board.subscriber is None:  # it serves one client
            self.board.subscriber = self
            if self.board.features & STATE:
                self.send(pb.BluetoothScannerStateResponse(state=2, mode=0))

    def _on_UnsubscribeBluetoothLEAdvertisementsRequest(self, _):
        if self.board.subscriber is self:
            self.board.subscriber = None
            self.board.connected.clear()  # the firmware does so

    def _on_SubscribeBluetoothConnectionsFreeRequest(self, _=None):
        used = sorted(self.board.connected)
        free = self.board.slots - len(used)
        self.send(pb.BluetoothConnectionsFreeResponse(free=free, limit=self.board.slots, allocated=used))

    def _on_BluetoothDeviceRequest(self, message):
        number, board = message.address, self.board
        if board.subscriber is not self:  # answers go to the client that takes the advertisements
            return
        if message.request_type == pb.BLUETOOTH_DEVICE_REQUEST_TYPE_DISCONNECT:
            board.connected.discard(number)
            self.send(pb.BluetoothDeviceConnectionResponse(address=number, connected=False))
            self._on_SubscribeBluetoothConnectionsFreeRequest()
            return
        device = self._device(number)
        if device is not None and device.hangs:
            return
        if device is None or device.refuses or len(board.connected) >= board.slots:
            self.send(pb.BluetoothDeviceConnectionResponse(address=number, connected=False, error=0x85))
            return
        board.connected.add(number)
        self.send(pb.BluetoothDeviceConnectionResponse(address=number, connected=True, mtu=247))
        self._on_SubscribeBluetoothConnectionsFreeRequest()

    def _on_BluetoothGATTGetServicesRequest(self, message):
        characteristics = [
            pb.BluetoothGATTCharacteristic(
                uuid=_halves(uuid),
                handle=handle,
                properties=PROPERTIES,
                descriptors=[pb.BluetoothGATTDescriptor(uuid=_halves(CCCD), handle=handle + 1)],
            )
            for uuid, handle in self._device(message.address).handles.items()
        ]
        service = pb.BluetoothGATTService(short_uuid=0x181A, handle=1, characteristics=characteristics)
        self.send(pb.BluetoothGATTGetServicesResponse(address=message.address, services=[service]))
        self.send(pb.BluetoothGATTGetServicesDoneResponse(address=message.address))

    def _on_BluetoothGATTReadRequest(self, message):
        value = self._device(message.address).values[message.handle]
        where = {"address": message.address, "handle": message.handle}
        if isinstance(value, int):
            self.send(pb.BluetoothGATTErrorResponse(**where, error=value))
        elif value is not None:  # None: no answer
            self.send(pb.BluetoothGATTReadResponse(**where, data=value))

    def _on_BluetoothGATTWriteRequest(self, message):
        device = self._device(message.address)
        device.written.append((message.handle, message.data, message.response))
        for uuid, answer in device.answers.items():
            handle = device.handles[uuid_of(uuid)]
            self.send(
                pb.BluetoothGATTNotifyDataResponse(address=message.address, handle=handle, data=answer(message.data))
            )
        if message.response:
            self.send(pb.BluetoothGATTWriteResponse(address=message.address, handle=message.handle))

    def _on_BluetoothGATTWriteDescriptorRequest(self, message):
        self._device(message.address).switched[message.handle - 1] = message.data
        self.send(pb.BluetoothGATTWriteResponse(address=message.address, handle=message.handle))

    def _on_BluetoothGATTNotifyRequest(self, message):
        self.send(pb.BluetoothGATTNotifyResponse(address=message.address, handle=message.handle))

    def _device(self, number):
        return next((each for address, each in self.board.devices.items() if number_of(address) == number), None)


def _halves(uuid):
    number = uuids.UUID(uuid).int
    return [number >> 64, number & 0xFFFF_FFFF_FFFF_FFFF]


def _varint(number):
    data = bytearray()
    while number > 0x7F:
        data.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes((*data, number))


async def advertise(board, address, data, rssi=-60):
    """Hear a device all the time, unless it is silent."""
    while True:
        if not board.devices[address].silent:
            board.hear(address, data, rssi)
        await asyncio.sleep(0.02)


async def main(port):
    board = Board()
    board.port = port
    async with board:
        sys.stdout.write(f"{board.port}\n")
        sys.stdout.flush()
        count = 0
        while True:
            await asyncio.sleep(0.05)
            count += 1
            thermometer = bytes.fromhex("d2fc4002") + (2000 + count % 100).to_bytes(2, "little")
            board.hear("F0:11:22:33:44:55", packet((0x16, thermometer)))


if __name__ == "__main__":
    asyncio.run(main(int(sys.argv[1])))
