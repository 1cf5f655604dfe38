"""Records for the journal of systemd: `tests/system/test_journal.py` has a real one."""

import logging
import socket
import string

import pytest
from hypothesis import given
from hypothesis import strategies as st

from leadsman.core.monitoring.log_format import MAX_FIELD_NAME_CHARS, JournalHandler, entry, field_name


def fields_in(datagram):
    """The fields of a datagram, read as the specification says."""
    found = {}
    while datagram:
        line, _, rest = datagram.partition(b"\n")
        name, separator, value = line.partition(b"=")
        if not separator:
            length = int.from_bytes(rest[:8], "little")
            value, rest = rest[8 : 8 + length], rest[8 + length + 1 :]
        found[name.decode()], datagram = value.decode(), rest
    return found


@given(st.dictionaries(st.text("ABC_9", min_size=1), st.text(st.characters(exclude_categories=["Cs"]))))
def test_each_field_is_read_as_it_was_written(fields):
    assert fields_in(entry(fields)) == fields


@given(st.text(min_size=1))
def test_the_journal_takes_the_name_of_each_field(name):
    found = field_name(name)

    assert found.startswith("LEADSMAN_")
    assert set(found) <= {*string.ascii_uppercase, *string.digits, "_"}
    assert len(found) <= MAX_FIELD_NAME_CHARS


class Kept(logging.Handler):
    def __init__(self):
        super().__init__()
        self.records = []

    def emit(self, record):
        self.records.append(record)


@pytest.fixture
def journal(tmp_path):
    """What stands for journald; and a logger that logs to it, and what could not be sent."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as server:
        server.bind(str(tmp_path / "socket"))
        server.settimeout(10)
        instead = Kept()
        handler = JournalHandler(str(tmp_path / "socket"), instead)
        logger = logging.Logger("house")
        logger.addHandler(handler)
        yield server, logger, instead
        handler.close()


def test_a_record_is_sent_with_its_priority_and_its_fields(journal):
    server, logger, instead = journal

    logger.warning("meter: it\nbroke", extra={"fields": {"device": "meter", "failures": 3, "event": "poll failed"}})

    assert fields_in(server.recv(65536)) == {
        "MESSAGE": "meter: it\n  | broke",
        "PRIORITY": "4",
        "LOGGER": "house",
        "LEADSMAN_DEVICE": "meter",
        "LEADSMAN_FAILURES": "3",
        "LEADSMAN_EVENT": "poll failed",
    }
    assert instead.records == []


def test_what_is_larger_than_a_datagram_goes_to_stderr(journal):
    _, logger, instead = journal

    logger.error("it broke", extra={"fields": {"detail": ["x"] * 1_000_000}})

    assert len(instead.records) == 1


def test_where_journald_has_gone_records_go_to_stderr(journal):
    server, logger, instead = journal
    server.close()

    logger.error("it broke")

    assert [record.getMessage() for record in instead.records] == ["it broke"]


def test_a_field_of_a_user_forges_nothing_and_one_that_cannot_be_written_goes_to_stderr(journal):
    server, logger, instead = journal

    logger.error("it broke", extra={"fields": {"device": "meter\nPRIORITY=0"}})
    logger.error("it broke again", extra={"fields": {"device": object()}})

    found = fields_in(server.recv(65536))
    assert found["PRIORITY"] == "3"
    assert "\n" not in found["LEADSMAN_DEVICE"]
    assert [record.getMessage() for record in instead.records] == ["it broke again"]
