"""Files whose paths somebody gives: what may never end is refused at once."""

import os
from pathlib import Path

import pytest

from leadsman import Broker
from leadsman.adapters.caldav.access import Access
from leadsman.adapters.caldav.client import Client
from leadsman.errors import ConfigurationError, DeviceError
from leadsman.mqtt.diagnosis import FileError
from leadsman.mqtt.transport import tls_context
from leadsman.storage.given_file import read_given
from leadsman.text.redaction import Secret

pytestmark = pytest.mark.timeout(30)


@pytest.fixture
def pipe(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    return str(tmp_path / "pipe")


def test_a_file_is_read_up_to_a_bound(tmp_path):
    (tmp_path / "file").write_bytes(b"0123456789")

    assert read_given(tmp_path / "file", 10) == b"0123456789"
    assert read_given(tmp_path / "file", 4) == b"01234"
    assert read_given("/dev/zero", 4) == bytes(5)


def test_a_pipe_is_refused_without_waiting_for_its_other_end(pipe):
    with pytest.raises(OSError, match="is a pipe, which may never end; write a regular file"):
        read_given(pipe, 10)


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
    client = Client(Access(Secret("http://127.0.0.1:9"), "ann", file, None, None, 1.0))

    with pytest.raises(DeviceError, match=reason):
        client.names()
