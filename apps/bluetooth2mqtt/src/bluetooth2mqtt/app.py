"""The app: one handler listens, and each sensor that it hears is a device with the values that it advertises."""

from collections.abc import AsyncIterator

from bluetooth2mqtt.settings import DEMO, Settings
from leadsman import App, Context, Device, Every, Finds, OnChange, command_line
from leadsman.adapters.ble import BleRadio, Decoders


def adapters(settings: Settings, radio: BleRadio | None = None) -> tuple[BleRadio, Decoders]:
    """The radios of the settings as one, and the decoders with the keys."""
    keys = {each.address: each.key for each in settings.sensors.values()}
    return radio or BleRadio(
        settings.adapter, passive=settings.passive, local=settings.local, proxies=settings.proxies.values()
    ), Decoders(keys)


def simulated(settings: Settings) -> tuple[BleRadio, Decoders]:
    """A radio without hardware, and the decoders."""
    from bluetooth2mqtt.twin import simulated_radio  # only a demo or a dry run loads it

    return adapters(settings, simulated_radio())


app = App("bluetooth2mqtt", version="0.1.0", settings=Settings, adapters=adapters, twins=simulated, keep_state=True)


def listeners(settings: Settings) -> dict[str, Device]:
    """One, which may find the sensors of the settings, and as many others as they allow."""
    return {"radio": Device(finds=Finds(most=settings.most + len(settings.sensors), stale_after="1h"))}


@app.source(listeners, needs="ble", stale_after="10m", silence=None, publish=OnChange() | Every("10m"))
async def radio(radio: BleRadio, decoders: Decoders, settings: Settings, context: Context) -> AsyncIterator[None]:
    """Publish what each sensor advertises: when it changes, and every ten minutes."""
    names = {each.address: name for name, each in settings.sensors.items()}
    for name in settings.sensors:
        context.device(name)  # no other sensor takes its place, and that it is silent is seen
    async for heard in decoders.measurements(radio):
        yield  # it listens
        known = names.get(heard.address)
        if known is not None or settings.discover:
            title = heard.title if known is None else None
            sensor = context.device(known or heard.address, fields=heard.fields, title=title)
            sensor.publish(heard.recent)


main = command_line(app, demo=DEMO)
