import io
import json
import logging
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from leadsman.core.monitoring.log_format import (
    Journal,
    JournalHandler,
    Json,
    TextFormatter,
    _formatter,
    _handler,
    wants_colour,
)
from leadsman.errors import InvalidValue


class Terminal(io.StringIO):
    def isatty(self):
        return True


def record(message, level=logging.WARNING, error=None):
    info = (type(error), error, error.__traceback__) if error else None
    return logging.LogRecord("leadsman", level, "file", 1, message, (), info)


def raised():
    try:
        raise OSError("broken\x1b[31m\r")
    except OSError as error:
        return error


def test_text_is_one_line_with_time_and_level():
    line = TextFormatter(colour=False).format(record("boiler: failing"))

    assert line.endswith(" WARNING boiler: failing")
    assert len(line.split()[0]) == 10


def test_levels_are_in_colour_where_it_helps():
    assert "\x1b[33mWARNING\x1b[0m" in TextFormatter(colour=True).format(record("x"))
    assert "\x1b" not in TextFormatter(colour=True).format(record("x", logging.INFO))


@pytest.mark.parametrize("formatter", [TextFormatter(colour=False), Json(), Journal()])
def test_no_device_writes_control_characters_or_secrets_into_the_log(formatter):
    text = formatter.format(record("a\x1b[2J\x07b mqtt://ann:hunter2@host password=hunter2", error=raised()))

    assert "\x1b" not in text
    assert "\x07" not in text
    assert "hunter2" not in text


def test_json_is_one_object_a_line_with_the_traceback_in_it():
    line = Json().format(record("it\nbroke", error=raised()))

    told = json.loads(line)
    assert "\n" not in line
    assert (told["level"], told["message"]) == ("warning", "it")
    assert "OSError" in told["detail"]
    assert told["at"].endswith("Z")


def test_every_line_in_the_journal_has_its_priority():
    lines = Journal().format(record("it\nbroke", logging.ERROR)).splitlines()

    assert lines == ["<3>it", "<3>  | broke"]


BREAKS = ("\n", "\r", "\r\n", "\v", "\f", "\x1c", "\x85", "\u2028", "\u2029")
RECORDS = {  # what begins a record
    "text": (TextFormatter(colour=False), r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d WARNING "),
    "journal": (Journal(), r"<\d>(?!  \| )"),
    "json": (Json(), r"\{"),
}


@pytest.mark.parametrize("kind", RECORDS)
@given(st.lists(st.text() | st.sampled_from(BREAKS), max_size=8), st.booleans())
def test_no_message_and_no_error_forges_a_record(kind, parts, as_error):
    formatter, beginning = RECORDS[kind]
    forged = "".join(part + "2026-11-22 12:00:00 WARNING <3>{" for part in parts)

    text = formatter.format(record("it", error=ValueError(forged)) if as_error else record(f"it {forged}"))

    assert [bool(re.match(beginning, line)) for line in text.split("\n")].count(True) == 1
    assert text.replace("\n", "").isprintable()


@pytest.mark.parametrize("kind", RECORDS)
def test_a_message_of_a_million_lines_is_cut_in_the_middle(kind):
    formatter, _ = RECORDS[kind]

    text = formatter.format(record("first\n" + "x\n" * 1_000_000 + "last"))

    assert "first" in text
    assert "last" in text
    assert "999,902 lines are left out" in text
    assert len(text) < 2000


@pytest.mark.parametrize(
    ("stream", "environment", "colour"),
    [
        (Terminal(), {}, True),
        (Terminal(), {"NO_COLOR": "1"}, False),
        (Terminal(), {"NO_COLOR": ""}, True),
        (Terminal(), {"TERM": "dumb"}, False),
        (io.StringIO(), {}, False),
    ],
)
def test_colour_is_for_terminals_that_want_it(stream, environment, colour):
    assert wants_colour(stream, environment) is colour


def test_the_stream_that_systemd_connected_gets_the_format_of_the_journal(tmp_path):
    with (tmp_path / "journal").open("w") as stream:
        status = (tmp_path / "journal").stat()
        ours = {"JOURNAL_STREAM": f"{status.st_dev}:{status.st_ino}"}

        assert isinstance(_formatter(None, stream, ours), Journal)
        assert isinstance(_formatter(None, stream, {"JOURNAL_STREAM": "1:1"}), TextFormatter)
        assert isinstance(_formatter("json", stream, ours), Json)


def test_an_unknown_format_is_named():
    with pytest.raises(InvalidValue, match="did you mean 'json'"):
        _formatter("jsn", io.StringIO(), {})


def test_the_journal_gets_fields_where_its_socket_is_and_priorities_elsewhere(tmp_path):
    (tmp_path / "socket").touch()
    with (tmp_path / "journal").open("w") as stream:
        status = (tmp_path / "journal").stat()
        ours = {"JOURNAL_STREAM": f"{status.st_dev}:{status.st_ino}"}

        native = _handler(None, stream, ours, str(tmp_path / "socket"))
        assert isinstance(native, JournalHandler)
        native.close()
        assert isinstance(_handler(None, stream, ours, str(tmp_path / "none")).formatter, Journal)
        assert isinstance(_handler("journal", stream, {}, str(tmp_path / "socket")).formatter, Journal)
        assert isinstance(_handler("json", stream, ours, str(tmp_path / "socket")).formatter, Json)
