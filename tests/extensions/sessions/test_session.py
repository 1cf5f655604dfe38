"""The file of a session: what is written is read again, and what is wrong is named."""

import json
import re
import string

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import TypeAdapter

from leadsman.errors import SessionError
from leadsman.extensions.sessions.document import SessionHead, SessionLine
from leadsman.extensions.sessions.session import (
    SHAPES,
    Event,
    RecordedSession,
    end,
    error_of,
    fields_of,
    head,
    read_session,
    session_of,
)

HEAD, LINE = TypeAdapter(SessionHead), TypeAdapter(SessionLine)

TEXT = st.text(max_size=20)
BYTES = st.binary(max_size=40) | st.text(string.printable, max_size=40).map(str.encode)
VALUES = {
    str: TEXT,
    type(None): st.none(),
    int: st.integers(-(2**70), 2**70),
    bool: st.booleans(),
    list: st.lists(TEXT, max_size=3),
}
MAPS = {
    "headers": st.dictionaries(TEXT, TEXT, max_size=3),
    "manufacturer": st.dictionaries(st.integers(0, 65535).map(str), BYTES.map(bytes.hex), max_size=3),
    "service_data": st.dictionaries(TEXT, BYTES.map(bytes.hex), max_size=3),
}


@st.composite
def contents(draw, shape):
    more = {
        field: draw(MAPS[field] if types == (dict,) else st.one_of([VALUES[kind] for kind in types]))
        for field, types in shape.fields.items()
    }
    return draw(BYTES) if shape.has_data else None, more


@st.composite
def sessions(draw):
    """Any session that a recorder may write."""
    events, at, begun = [], 0.0, []
    for line in range(2, draw(st.integers(2, 12))):
        at = round(at + draw(st.integers(0, 100_000)) / 1000, 3)
        kind = draw(st.sampled_from(sorted(SHAPES)))
        wire = f"{kind} {draw(st.sampled_from(['', '/dev/ttyUSB0', 'http://ä.lan']))}".rstrip()
        open_ = [each for each in begun if each[0] == wire]
        asks = not open_ or draw(st.booleans())
        what = draw(st.sampled_from([name for name, shape in SHAPES[kind].items() if shape.asks is asks]))
        begun += [(wire, len(begun) + 1)] if asks else []
        wire, n = begun[-1] if asks else draw(st.sampled_from(open_))
        data, more = draw(contents(SHAPES[kind][what]))
        events.append(Event(at, wire, n, what, data, more, line))
    began = draw(st.integers(0, 2**32 * 1000)) / 1000
    return RecordedSession(draw(TEXT), began, at, tuple(events), "a.session")


def text_of(session):
    lines = [each.as_line() for each in session.events]
    return "".join((head(session.app, session.began), *lines, end(session.length)))


@given(sessions())
def test_each_line_of_a_session_is_what_the_types_of_its_lines_declare(session):
    first, last = json.loads(head(session.app, session.began)), json.loads(end(session.length))
    lines = [json.loads(each.as_line()) for each in session.events]

    assert HEAD.validate_python(first, strict=True) == first
    assert LINE.validate_python(last, strict=True) == last
    for line, event in zip(lines, session.events, strict=True):
        assert LINE.validate_python(line, strict=True) == {
            name: each for name, each in line.items() if name not in event.more or name in ("error", "message")
        }


@given(sessions())
def test_a_session_that_is_written_and_read_is_the_same(session):
    text = text_of(session)

    assert session_of(text, "a.session") == session
    assert text.count("\n") == len(session.events) + 2


@given(sessions(), st.data())
def test_a_session_that_is_cut_anywhere_is_refused_with_its_line(session, data):
    text = text_of(session)
    cut = data.draw(st.integers(0, len(text.rstrip()) - 1))

    with pytest.raises(SessionError, match=r"^a\.session line \d+: "):
        session_of(text[:cut], "a.session")


@given(sessions(), st.data())
def test_the_advice_for_a_session_that_was_cut_makes_it_whole(session, data):
    lines = re.findall(r".*\n", text_of(session))
    kept = data.draw(st.integers(1, len(lines) - 1))
    text = "".join(lines[:kept])
    partial = data.draw(st.integers(0, len(lines[kept].rstrip()) - 1))

    with pytest.raises(SessionError) as found:
        session_of(text + lines[kept][:partial], "a.session")

    last = str(found.value).partition("what is there: ")[2]
    assert session_of(text + last, "a.session").events == session.events[: kept - 1]


@given(st.text(min_size=1).filter(str.strip), st.integers(0, 8))
def test_garbage_is_refused_and_never_anything_else(garbage, place):
    lines = WHOLE.splitlines()
    lines[place:place] = [garbage]

    with pytest.raises(SessionError, match=r"^a\.session line \d+: "):
        session_of("\n".join(lines), "a.session")


WHOLE = """\
{"session": 1, "app": "kitchen", "began": "2026-11-27T20:40:00.000Z"}
{"at": 0.003, "wire": "serial /dev/ttyUSB0", "n": 1, "event": "open"}
{"at": 0.021, "n": 1, "event": "opened"}
{"at": 0.022, "wire": "serial /dev/ttyUSB0", "n": 2, "event": "send", "text": "P?\\r\\n"}
{"at": 0.139, "n": 2, "event": "received", "hex": "02 ff 03"}
{"at": 0.2, "wire": "bluetooth", "n": 3, "event": "scan"}
{"at": 600.0, "event": "end"}
"""


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ('{"session": 1', "hello", "line 1: this is no session; leadsman record APP writes one"),
        (
            '{"session": 1',
            '{"session": 2',
            r"line 1: the session was written by a newer version of leadsman \(layout 2, this one knows 1\); update",
        ),
        ('{"session": 1', '{"session": "one"', 'line 1: the session has version "one", .*; record it again'),
        ('"kitchen"', "7", "line 1: app and began are missing, or no text"),
        ("2026-11-27T20:40:00.000Z", "yesterday", 'line 1: began is "yesterday", which is no time'),
        ('"n": 1, "event": "open"}', '"n": 1, "event": "open"', "line 2: this is no JSON: .*; .* fix the line"),
        ('{"at": 0.003', '{"at": NaN', "line 2: this is no JSON: NaN is no number"),
        ('{"at": 0.003', '{"at": 1e999', "line 2: at is Infinity; it must be 0 to 31622400 seconds"),
        ('{"at": 0.003', '{"at": "soon"', 'line 2: at is "soon"'),
        ('{"at": 0.021', '{"at": 0.002', "line 3: at is 0.002, which is before 0.003 of the line above"),
        ('"serial /dev/ttyUSB0", "n": 1, "event": "open"', '"serail x", "n": 1, "event": "open"', "mean 'serial'"),
        ('"event": "send"', '"event": "sent"', "line 4: event is \"sent\"; did you mean 'send'"),
        ('"n": 2, "event": "send"', '"n": 0, "event": "send"', "line 4: n is 0; it must be 1 or more"),
        ('"n": 2, "event": "send"', '"n": 1, "event": "send"', "line 4: exchange 1 begins for the second time"),
        ('"n": 2, "event": "received"', '"n": 3, "event": "received"', "line 5: it belongs to exchange 3, which no"),
        ('"wire": "bluetooth"', '"wire": 7', "line 6: wire is no text"),
        ('"wire": "bluetooth", "n": 3, "event": "scan"', '"n": 3, "event": "scan"', "line 6: it belongs to exchange 3"),
        (
            '"wire": "bluetooth", "n": 3, "event": "scan"',
            '"n": 2, "event": "send", "text": ""',
            "line 6: exchange 2 begins",
        ),
        ('"hex": "02 ff 03"', '"hex": "02 fg"', 'line 5: its bytes are missing or wrong: .* hex is "02 fg"'),
        ('"hex": "02 ff 03"', '"hexa": ""', "line 5: its bytes are missing or wrong"),
        ('"event": "scan"}', '"event": "scan", "x": [[[[[[]]]]]]}', "line 6: it is nested deeper than 4"),
        ('{"at": 0.2, "wire": "bluetooth", "n": 3, "event": "scan"}', "[1]", "line 6: this is no object in {}"),
        (
            '{"at": 0.2, "wire": "bluetooth", "n": 3, "event": "scan"}',
            '{"at": 0.2, "wire": "bluetooth", "n": 3, "event": "connect"}',
            "line 6: address of 'connect' is null",
        ),
        ('{"at": 600.0, "event": "end"}\n', "", 'line 6: the end is missing; .* append this line, .*"at": 0.2'),
        ('{"at": 600.0, "event": "end"}', '{"at": 600.0, "ev', "line 7: the line is cut off; .* replace it by"),
        ('"end"}\n', '"end"}\n{"at": 601, "event": "end"}\n', "line 8: something follows the end; delete it"),
    ],
)
def test_what_is_wrong_in_a_session_is_named_with_its_line_and_what_to_do(old, new, message):
    assert WHOLE.count(old) == 1

    with pytest.raises(SessionError, match=rf"^k\.session {message}" if message.startswith("line") else message):
        session_of(WHOLE.replace(old, new), "k.session")


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (None, "cannot be read: .*No such file"),
        (b"", "line 1: this is no session"),
        (b"\x89PNG\r\n", "line 1: there are bytes that are no UTF-8"),
        (WHOLE.encode().replace(b"P?", b"\xff"), "line 4: there are bytes that are no UTF-8"),
    ],
)
def test_a_file_that_is_no_session_is_refused(tmp_path, content, message):
    path = tmp_path / "k.session"
    if content is not None:
        path.write_bytes(content)

    with pytest.raises(SessionError, match=message):
        read_session(path)


def test_a_file_that_never_ends_is_refused():
    with pytest.raises(SessionError, match="more than 64 MiB"):
        read_session("/dev/zero")


@given(
    st.dictionaries(st.sampled_from(["error", "message", "errno", "seconds", "properties"]), st.text() | st.integers())
)
def test_whatever_an_error_was_edited_to_it_is_an_error(fields):
    assert isinstance(error_of(fields), Exception)


def test_an_error_keeps_what_a_policy_asks_for():
    assert fields_of(error_of({"error": "TransientError", "message": "busy", "properties": {"gatt-code": 9}})) == {
        "error": "TransientError",
        "message": "busy",
        "properties": {"gatt-code": 9},
    }
