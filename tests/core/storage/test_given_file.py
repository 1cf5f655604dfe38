"""Files whose paths somebody gives: what may never end is refused at once."""

import asyncio
import os
from pathlib import Path

import pytest

from leadsman import Broker
from leadsman.adapters.caldav import CalDav
from leadsman.core.mqtt.diagnosis import FileError
from leadsman.core.mqtt.transport import tls_context
from leadsman.errors import ConfigurationError, DeviceError


@pytest.fixture
def pipe(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    return str(tmp_path / "pipe")


@pytest.mark.parametrize("query", ["ca={}", "cert={0}&key={0}"])
@pytest.mark.parametrize(("path", "reason"), [("pipe", "it is a pipe"), ("/dev/zero", "it has more than")])
def test_a_certificate_is_neither_a_pipe_nor_a_device_that_never_ends(pipe, query, path, reason):
    broker = Broker.from_url(f"mqtts://h?{query.format(pipe if path == 'pipe' else path)}")

    with pytest.raises(ConfigurationError, match=reason):
        broker.check_files()
    with pytest.raises(FileError, match=reason):
        tls_context(broker)


@pytest.mark.parametrize(("path", "reason"), [("pipe", "is a pipe"), ("/dev/zero", "which is no password")])
def test_a_password_file_is_neither_a_pipe_nor_a_device_that_never_ends(pipe, path, reason):
    file = Path(pipe if path == "pipe" else path)

    async def names():
        async with CalDav("http://127.0.0.1:9", "ann", file) as calendars:
            await calendars.calendars()

    with pytest.raises(DeviceError, match=reason):
        asyncio.run(names())
