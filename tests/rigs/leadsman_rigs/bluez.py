"""Bluetooth without a radio: real bleak over a real D-Bus, a stand-in for bluetoothd, and real GATT stacks (bumble) in
the air.

::

    with Air() as air:                                  its own thread; sets DBUS_SYSTEM_BUS_ADDRESS
        thermometer = air.place(GattServer("F0:11:22:33:44:55", "thermometer", {"181a": {"2a6e": b"\\x66\\x08"}}))
        ...                                             bleak in the test's own loop sees and reads it

What stands in for bluetoothd is `Daemon`: it puts objects of ``org.bluez`` on the bus, as BlueZ 5.66 does. Behind each
device stands a `Peer`, which does what the controller would: `Scripted` has it in memory, with faults; `GattServer`
sends it through bumble's host, controllers and link layer, so that MTU exchange, discovery, CCCD writes and ATT errors
are nobody's fiction.
"""

import asyncio
import contextlib
import itertools
import os
import subprocess
import tempfile
import threading
from pathlib import Path
from typing import Annotated

from bumble.att import ATT_Error
from bumble.controller import Controller
from bumble.core import AdvertisingData, ProtocolError
from bumble.device import Device
from bumble.device import Peer as GattClient
from bumble.gatt import Characteristic, CharacteristicValue, Service
from bumble.hci import Address
from bumble.host import Host
from bumble.link import LocalLink
from bumble.transport.common import AsyncPipeSink
from dbus_fast import DBusError, Message, PropertyAccess, Variant
from dbus_fast.aio import MessageBus
from dbus_fast.annotations import DBusBytes, DBusDict, DBusObjectPath, DBusSignature
from dbus_fast.service import ServiceInterface, dbus_method, dbus_property

from leadsman.adapters.ble.gatt import uuid_of

CONFIGURATION = """<!DOCTYPE busconfig PUBLIC "-//freedesktop//DTD D-Bus Bus Configuration 1.0//EN"
 "http://www.freedesktop.org/standards/dbus/1.0/busconfig.dtd">
<busconfig><type>session</type><listen>unix:path={socket}</listen><auth>EXTERNAL</auth><policy context="default">
<allow user="*"/><allow own="*"/><allow send_destination="*" eavesdrop="true"/><allow eavesdrop="true"/>
</policy></busconfig>"""
RADIO = "/org/bluez/hci0"


def failed(text, name="org.bluez.Error.Failed"):
    return DBusError(name, text)


def published(**signatures):
    """A class decorator: properties of an interface, by name and signature, read from ``self.values``."""

    def getter(name, signature):
        def get(self):
            return self.values[name]

        get.__name__, get.__annotations__ = name, {"return": Annotated[object, DBusSignature(signature)]}
        return dbus_property(access=PropertyAccess.READ)(get)

    def decorate(cls):
        for name, signature in signatures.items():
            setattr(cls, name, getter(name, signature))
        return cls

    return decorate


class Object(ServiceInterface):
    def __init__(self, interface, **values):
        super().__init__(f"org.bluez.{interface}")
        self.values = values

    def change(self, **values):
        self.values |= values
        self.emit_properties_changed(values)


@published(Address="s", Name="s", Alias="s", Powered="b", Discovering="b", Roles="as", UUIDs="as")
class Radio(Object):
    def __init__(self, daemon):
        super().__init__(
            "Adapter1",
            Address="00:00:5E:00:53:01",
            Name="air",
            Alias="air",
            Powered=True,
            Discovering=False,
            Roles=["central"],
            UUIDs=[],
        )
        self.daemon = daemon

    @dbus_method()
    async def SetDiscoveryFilter(self, properties: DBusDict):  # noqa: N802  # BlueZ's name
        found = properties.get("DuplicateData")
        self.daemon.duplicates = found is not None and found.value

    @dbus_method()
    async def StartDiscovery(self):  # noqa: N802  # BlueZ's name
        if self.daemon.refuses is not None:
            raise failed("Rejected send message", self.daemon.refuses)
        if not self.values["Powered"]:
            raise failed("Resource Not Ready", "org.bluez.Error.NotReady")
        if self.values["Discovering"]:
            raise failed("Operation already in progress", "org.bluez.Error.InProgress")
        self.change(Discovering=True)
        await self.daemon.scan(True)

    @dbus_method()
    async def StopDiscovery(self):  # noqa: N802  # BlueZ's name
        self.change(Discovering=False)
        await self.daemon.scan(False)

    @dbus_method()
    async def RemoveDevice(self, device: DBusObjectPath):  # noqa: N802  # BlueZ's name
        self.daemon.forget(device)


@published(SupportedMonitorTypes="as", SupportedFeatures="as")
class Monitors(Object):
    def __init__(self, daemon):
        super().__init__("AdvertisementMonitorManager1", SupportedMonitorTypes=["or_patterns"], SupportedFeatures=[])
        self.daemon = daemon

    @dbus_method()
    async def RegisterMonitor(self, application: DBusObjectPath):  # noqa: N802  # BlueZ's name
        await self.daemon.scan(True)

    @dbus_method()
    async def UnregisterMonitor(self, application: DBusObjectPath):  # noqa: N802  # BlueZ's name
        await self.daemon.scan(False)


@published(
    Adapter="o",
    Address="s",
    AddressType="s",
    Name="s",
    Alias="s",
    Paired="b",
    Trusted="b",
    Blocked="b",
    Connected="b",
    ServicesResolved="b",
    RSSI="n",
    UUIDs="as",
    ManufacturerData="a{qv}",
    ServiceData="a{sv}",
)
class Known(Object):
    """A device that was heard."""

    def __init__(self, daemon, peer):
        self.daemon, self.peer, self.path = daemon, peer, f"{RADIO}/dev_{peer.address.replace(':', '_')}"
        name = peer.name or peer.address.replace(":", "-")
        super().__init__(
            "Device1",
            Adapter=RADIO,
            Address=peer.address,
            AddressType="random",
            Name=name,
            Alias=name,
            Paired=False,
            Trusted=False,
            Blocked=False,
            Connected=False,
            ServicesResolved=False,
            RSSI=peer.rssi,
            UUIDs=[uuid_of(each) for each in peer.uuids],
            ManufacturerData={},
            ServiceData={},
        )
        self.values |= self.news()
        self.attributes, self.calls, self.objects = {}, set(), []

    def news(self):
        """What BlueZ signals of a packet. It joins its data to that of earlier ones, and signals what changes; if a
        client wants duplicates, it has that of this packet alone, and signals it in any case."""
        peer, found = self.peer, {"RSSI": self.peer.rssi}
        for key, said in (
            ("ManufacturerData", {company: Variant("ay", data) for company, data in peer.manufacturer.items()}),
            ("ServiceData", {uuid_of(each): Variant("ay", data) for each, data in peer.service_data.items()}),
        ):
            data = said if self.daemon.duplicates else {**self.values[key], **said}
            if said and (self.daemon.duplicates or data != self.values[key]):
                found[key] = data
        return found

    async def guarded(self, step):
        """What the peer does; a hang-up meanwhile ends it."""
        task = asyncio.ensure_future(step)
        self.calls.add(task)
        task.add_done_callback(self.calls.discard)
        try:
            return await asyncio.shield(task)
        except asyncio.CancelledError:
            raise failed("Operation was cancelled") from None

    @dbus_method()
    async def Connect(self):  # noqa: N802  # BlueZ's name
        services = await self.guarded(self.peer.connect(self))
        self.change(Connected=True)
        handles = itertools.count(1)
        for service, characteristics in services.items():
            path = f"{self.path}/service{next(handles):04x}"
            self.export(path, Section(self, uuid_of(service)))
            for uuid, flags in characteristics.items():
                attribute = self.attributes[uuid_of(uuid)] = Attribute(self, path, uuid_of(uuid), flags)
                self.export(f"{path}/char{next(handles):04x}", attribute)
        if self.peer.resolves:
            self.change(ServicesResolved=True)

    @dbus_method()
    async def Disconnect(self):  # noqa: N802  # BlueZ's name
        await self.hang_up()

    async def hang_up(self):
        for task in list(self.calls):
            task.cancel()
        if self.values["Connected"]:
            await self.peer.disconnect()
            self.change(ServicesResolved=False)
            self.change(Connected=False)
        self.vanish()

    def export(self, path, thing):
        self.daemon.bus.export(path, thing)
        self.objects.append(path)

    def vanish(self):
        while self.objects:
            self.daemon.bus.unexport(self.objects.pop())
        self.attributes.clear()

    def notify(self, uuid, data):
        attribute = self.attributes.get(uuid_of(uuid))
        if attribute is not None and attribute.values["Notifying"]:
            attribute.change(Value=data)


@published(UUID="s", Primary="b", Device="o", Includes="ao")
class Section(Object):
    def __init__(self, known, uuid):
        super().__init__("GattService1", UUID=uuid, Primary=True, Device=known.path, Includes=[])


@published(UUID="s", Service="o", Value="ay", Notifying="b", Flags="as", MTU="q")
class Attribute(Object):
    def __init__(self, known, service, uuid, flags):
        super().__init__(
            "GattCharacteristic1", UUID=uuid, Service=service, Value=b"", Notifying=False, Flags=sorted(flags), MTU=247
        )
        self.known = known

    @dbus_method()
    async def ReadValue(self, options: DBusDict) -> DBusBytes:  # noqa: N802  # BlueZ's name
        data = await self.known.guarded(self.known.peer.read(self.values["UUID"]))
        self.change(Value=data)  # BlueZ does: whoever is subscribed gets a notification of it
        return data

    @dbus_method()
    async def WriteValue(self, value: DBusBytes, options: DBusDict):  # noqa: N802  # BlueZ's name
        response = options.get("type", Variant("s", "request")).value == "request"
        await self.known.guarded(self.known.peer.write(self.values["UUID"], bytes(value), response))

    @dbus_method()
    async def StartNotify(self):  # noqa: N802  # BlueZ's name
        await self.known.guarded(self.known.peer.subscribe(self.values["UUID"], True))
        self.change(Notifying=True)

    @dbus_method()
    async def StopNotify(self):  # noqa: N802  # BlueZ's name
        await self.known.guarded(self.known.peer.subscribe(self.values["UUID"], False))
        self.change(Notifying=False)


class Daemon:
    """What stands in for bluetoothd."""

    def __init__(self, address, peers):
        self.address, self.peers, self.known, self.scanning = address, peers, {}, False
        self.advertiser = self.refuses = None
        self.duplicates = False
        """Whether a client wants each packet signalled."""

    async def start(self):
        self.bus = await MessageBus(bus_address=self.address).connect()
        self.radio = Radio(self)
        self.bus.export(RADIO, self.radio)
        self.bus.export(RADIO, Monitors(self))
        await self.bus.request_name("org.bluez")

    async def stop(self):
        """Die: no signal, no goodbye."""
        await self.scan(False)
        for known in self.known.values():
            for task in list(known.calls):
                task.cancel()
        await asyncio.sleep(0.01)  # error replies still go out
        self.known.clear()
        self.bus.disconnect()
        with contextlib.suppress(Exception):
            await self.bus.wait_for_disconnect()

    async def scan(self, on):
        self.scanning = on
        if on and self.advertiser is None:
            self.advertiser = asyncio.create_task(self.advertise())
        elif not on and self.advertiser is not None:
            self.advertiser.cancel()
            self.advertiser = None

    async def advertise(self):
        """Devices in memory say their thing ten times a second; those in the air do so by themselves."""
        while True:
            for peer in list(self.peers.values()):
                if isinstance(peer, Scripted) and not peer.silent:
                    self.heard(peer)
            await asyncio.sleep(0.1)

    def heard(self, peer):
        if not self.scanning:
            return
        if peer.address in self.known:
            self.known[peer.address].change(**self.known[peer.address].news())
        else:
            self.known[peer.address] = known = Known(self, peer)
            self.bus.export(known.path, known)

    def forget(self, path):
        for address, known in list(self.known.items()):
            if known.path == path:
                known.vanish()
                self.bus.unexport(path)
                del self.known[address]

    async def forget_all(self):
        for known in list(self.known.values()):
            self.forget(known.path)

    async def power(self, on):
        self.radio.change(Powered=on)

    async def settle(self):
        """Until the bus has what was sent: dbus-fast's writer fails when its socket is full."""
        await self.bus.call(
            Message(
                destination="org.freedesktop.DBus",
                path="/org/freedesktop/DBus",
                interface="org.freedesktop.DBus.Peer",
                member="Ping",
            )
        )


class Scripted:
    """A peer in memory. Its attributes are its faults."""

    def __init__(self, address, name=None, services=None, **said):
        self.address, self.name, self.services = address, name, services or {}
        self.values = {uuid_of(uuid): data for each in self.services.values() for uuid, data in each.items()}
        self.uuids, self.rssi = list(self.services), -60
        self.manufacturer, self.service_data = said.get("manufacturer", {}), said.get("service_data", {})
        self.resolves, self.silent, self.delay = True, False, 0.0
        self.answers = {uuid_of(uuid): answer for uuid, answer in said.get("answers", {}).items()}
        self.refuses = self.denies = None
        self.connects, self.written, self.record = 0, [], None

    async def connect(self, known):
        await asyncio.sleep(self.delay)
        self.connects += 1
        if self.refuses:
            raise failed(self.refuses)
        self.record = known
        flags = {"read", "write", "notify"}
        return {service: dict.fromkeys(each, flags) for service, each in self.services.items()}

    async def disconnect(self): ...

    async def read(self, uuid):
        await asyncio.sleep(self.delay)
        if self.denies:
            raise self.denies
        return self.values[uuid]

    async def write(self, uuid, data, response):
        self.written.append((uuid, data, response))
        for answering, answer in self.answers.items():
            self.record.notify(answering, answer(data))  # before the write is acknowledged

    async def subscribe(self, uuid, on): ...


class GattServer:
    """A device with a GATT server of bumble's, on a controller of its own.

    `services` maps UUIDs of services to characteristics; a value is bytes, or a function that is asked at each read and
    may raise `ATT_Error`. `answers` maps UUIDs to functions that make a notification of what is written.
    """

    resolves, rssi = True, -60

    def __init__(self, address, name, services, manufacturer=None, service_data=None, answers=None):
        self.address, self.name, self.written, self.answers = address, name, [], answers or {}
        self.manufacturer, self.service_data, self.uuids = manufacturer or {}, service_data or {}, list(services)
        self.characteristics = {}
        may = Characteristic.Properties.READ | Characteristic.Properties.WRITE | Characteristic.Properties.NOTIFY
        sections = []
        for service, values in services.items():
            inside = []
            for uuid, value in values.items():
                handler = CharacteristicValue(
                    read=(lambda connection, value=value: value() if callable(value) else value),
                    write=(lambda connection, data, uuid=uuid: self.wrote(uuid, bytes(data))),
                )
                each = Characteristic(uuid.upper(), may, Characteristic.READABLE | Characteristic.WRITEABLE, handler)
                self.characteristics[uuid_of(uuid)] = each
                inside.append(each)
            sections.append(Service(service.upper(), inside))
        self.sections = sections

    def wrote(self, uuid, data):
        self.written.append((uuid, data))
        for answering, answer in self.answers.items():
            self.answering = asyncio.ensure_future(self.notify(answering, answer(data)))

    async def appear(self, air):
        self.air = air
        self.controller = Controller(self.name, link=air.link)
        host = Host(self.controller, AsyncPipeSink(self.controller))
        self.device = Device(name=self.name, address=Address(self.address), host=host)
        self.device.add_services(self.sections)
        await self.device.power_on()
        said = [(AdvertisingData.FLAGS, b"\x06"), (AdvertisingData.COMPLETE_LOCAL_NAME, self.name.encode())]
        said += [
            (AdvertisingData.MANUFACTURER_SPECIFIC_DATA, company.to_bytes(2, "little") + data)
            for company, data in self.manufacturer.items()
        ]
        self.device.advertising_data = bytes(AdvertisingData(said))
        await self.device.start_advertising(
            auto_restart=True, advertising_interval_min=100, advertising_interval_max=100
        )

    async def connect(self, known):
        central = self.air.central
        try:
            self.connection = await central.connect(Address(self.address), timeout=30)
        except Exception as error:
            raise failed(f"le-connection-abort-by-local {type(error).__name__}") from None
        self.connection.on("disconnection", lambda _: asyncio.ensure_future(known.hang_up()))
        client = GattClient(self.connection)
        await client.request_mtu(247)
        await client.discover_services()
        self.proxies, found = {}, {}
        for service in client.services:
            await service.discover_characteristics()
            section = found.setdefault(str_of(service.uuid), {})
            for each in service.characteristics:
                section[str_of(each.uuid)] = {
                    word
                    for word, bit in (("read", 0x02), ("write", 0x08), ("notify", 0x10), ("indicate", 0x20))
                    if int(each.properties) & bit
                }
                self.proxies[str_of(each.uuid)] = each
        self.known = known
        return found

    async def disconnect(self):
        if self.connection.handle in self.air.central.connections:
            await self.connection.disconnect()

    async def read(self, uuid):
        return bytes(await self.spoken(self.proxies[uuid].read_value()))

    async def write(self, uuid, data, response):
        await self.spoken(self.proxies[uuid].write_value(data, with_response=response))

    async def subscribe(self, uuid, on):
        proxy = self.proxies[uuid]
        await self.spoken(
            proxy.subscribe(lambda data: self.known.notify(uuid, bytes(data))) if on else proxy.unsubscribe()
        )

    async def spoken(self, step):
        try:
            return await asyncio.wait_for(step, 30)
        except (ATT_Error, ProtocolError) as error:
            raise failed(f"Operation failed with ATT error: 0x{error.error_code:02x}") from None

    async def notify(self, uuid, data):
        await self.device.notify_subscribers(self.characteristics[uuid_of(uuid)], data)

    async def hang_up(self):
        for connection in list(self.device.connections.values()):
            await connection.disconnect()

    async def leave(self):
        """Out of range: no goodbye."""
        self.air.link.remove_controller(self.controller)


def str_of(uuid):
    text = uuid.to_bytes(force_128=True)[::-1].hex()
    return f"{text[:8]}-{text[8:12]}-{text[12:16]}-{text[16:20]}-{text[20:]}"


class Air:
    """A bus, a daemon and everybody in the air, in a thread of their own."""

    def __enter__(self):
        self.directory = tempfile.TemporaryDirectory(prefix="leadsman-air-")
        socket = Path(self.directory.name, "bus")
        configuration = Path(self.directory.name, "bus.conf")
        configuration.write_text(CONFIGURATION.format(socket=socket))
        self.bus = subprocess.Popen(
            ["dbus-daemon", f"--config-file={configuration}", "--nofork", "--nopidfile", "--print-address=1"],
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
        )
        self.bus.stdout.readline()  # it listens now
        self.before = os.environ.get("DBUS_SYSTEM_BUS_ADDRESS")
        self.address = os.environ["DBUS_SYSTEM_BUS_ADDRESS"] = f"unix:path={socket}"
        self.loop = asyncio.new_event_loop()
        self.thread = threading.Thread(target=self.loop.run_forever, daemon=True)
        self.thread.start()
        self.peers = {}
        self.call(self._begin())
        return self

    async def _begin(self):
        self.link = LocalLink()
        controller = Controller("central", link=self.link)
        self.central = Device(
            name="central", address=Address("F0:00:00:00:00:01"), host=Host(controller, AsyncPipeSink(controller))
        )
        await self.central.power_on()
        self.central.on("advertisement", self._heard)
        await self.central.start_scanning(filter_duplicates=False)
        self.daemon = Daemon(self.address, self.peers)
        await self.daemon.start()

    def _heard(self, advertisement):
        peer = self.peers.get(str(advertisement.address).split("/")[0])
        if isinstance(peer, GattServer):
            self.daemon.heard(peer)

    def call(self, step, timeout=60):
        """Run a coroutine in the thread."""
        return asyncio.run_coroutine_threadsafe(step, self.loop).result(timeout)

    def place(self, peer):
        """Put a device into the air."""
        self.peers[peer.address] = peer
        if isinstance(peer, GattServer):
            self.call(peer.appear(self))
        return peer

    def restart_daemon(self):
        self.call(self.daemon.start())

    def __exit__(self, *exc_info):
        with contextlib.suppress(Exception):
            self.call(self.daemon.stop())
        self.loop.call_soon_threadsafe(self.loop.stop)
        self.thread.join(60)
        for task in asyncio.all_tasks(self.loop):
            task.cancel()
        self.loop.run_until_complete(asyncio.sleep(0))
        self.loop.close()
        self.bus.terminate()
        self.bus.wait()
        self.bus.stdout.close()
        if self.before is None:
            os.environ.pop("DBUS_SYSTEM_BUS_ADDRESS", None)
        else:
            os.environ["DBUS_SYSTEM_BUS_ADDRESS"] = self.before
        self.directory.cleanup()
