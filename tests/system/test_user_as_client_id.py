"""A broker that uses the user name as the client id: a tool with the user of the app is the same client to it."""

import asyncio

import pytest

from leadsman import Broker
from leadsman.core.mqtt.side_connection import SideConnection
from leadsman.errors import BrokerError
from leadsman.testing.mosquitto import Mosquitto
from leadsman_rigs.password_file import write_password_file

APP = """
@app.telemetry("tank", interval=0.1)
async def tank():
    return {"litres": 7}
"""


def test_a_tool_says_so_and_leaves_at_once_so_that_the_app_is_back(tmp_path, listen, start_app):
    passwords = tmp_path / "passwords"
    write_password_file(passwords, ann="secret", tool="secret")
    conf = f"use_username_as_clientid true\npassword_file {passwords}\n"
    with Mosquitto(conf, anonymous=False) as broker:
        app = start_app(APP, f"mqtt://ann:secret@127.0.0.1:{broker.port}")
        app.wait_for("connected to the broker")

        async def ask(user):
            async with SideConnection().at(Broker.from_url(f"mqtt://{user}:secret@127.0.0.1:{broker.port}")):
                pass

        with pytest.raises(BrokerError, match="uses the user name as the client id.*give the tool a user of its own"):
            asyncio.run(ask("ann"))
        asyncio.run(ask("tool"))
        app.wait_for(" after ")  # it is connected again
