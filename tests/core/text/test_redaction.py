import gc
import json
import logging
from urllib.parse import quote

import pytest
from hypothesis import assume, example, given
from hypothesis import strategies as st
from pydantic import BaseModel

from leadsman import App
from leadsman.core.settings.sources import Where
from leadsman.core.text import clean
from leadsman.core.text.redaction import MIN_SECRET_CHARS, Address, Redaction, Secret, pattern_of, without_secrets
from leadsman.errors import ConfigurationError, InvalidType, InvalidValue

SERIAL = r"SN-[0-9]{8}"
MAC = r"(?i)\b(?:[0-9a-f]{2}:){5}[0-9a-f]{2}\b"


def test_what_a_pattern_matches_is_hidden_as_long_as_its_app_lives():
    redaction = Redaction([SERIAL, MAC])

    assert clean("no answer from SN-12345678 at AA:bb:CC:00:11:22, SN-1") == "no answer from *** at ***, SN-1"
    assert clean("password=geheim of SN-12345678") == "password=*** of ***"
    del redaction
    gc.collect()
    assert clean("SN-12345678") == "SN-12345678"


def test_many_patterns_that_match_every_character_do_not_make_a_text_grow():
    everything = Redaction([r"[\s\S]"] * 12)

    assert set(clean("SN-12345678")) == {"*", "…"}
    assert everything.patterns


def test_patterns_of_an_app_hide_secrets_in_errors_logs_and_introspection_but_not_in_readings(harness, caplog):
    app = App("app", redact=[SERIAL])
    reads = iter([{"serial": "SN-12345678"}])

    @app.telemetry("d", interval="10s")
    async def read():
        for reading in reads:
            return reading
        raise OSError("no answer from SN-12345678")

    running = harness(app)
    with caplog.at_level(logging.DEBUG):
        running.run(15)
    running.broker.send("app/introspect", {"sections": ["devices", "trace"]}, response_topic="app/answers")
    running.run(1)

    assert running.states("d") == [{"serial": "SN-12345678"}]
    assert running.errors("d")[0]["message"] == "no answer from ***"
    answer = running.broker.messages("app/answers")[-1].json
    assert "no answer from ***" in json.dumps(answer)
    assert "SN-1234" not in json.dumps(answer)
    assert "SN-1234" not in caplog.text


@pytest.mark.parametrize(
    "pattern",
    [
        r"(a+)+$",
        r"(a*)*",
        r"(a|aa)+",
        r"([a-z]+\d?)*x",
        r"(?:\d\d?)+",
        r"(.*a){20}.*b",
        r"(a?){30}a{30}",
        r"(\w+\s?)*:",
        r"(x+x+)+y",
        r"(?=(a+)+$)b",
        r"(?P<one>a)(?:\1|a)*b",
        r".*.*.*=",
        r"\S+@\S+\.\S+",
        r"a{1,1000}b{1,1000}",
        r".*a{500}b",
        "a?" * 20 + "b",
        "(?:ab|cd)" * 20 + "d",
    ],
)
def test_a_pattern_that_may_take_too_long_is_refused(pattern):
    with pytest.raises(InvalidValue, match="may take too long on a long text; write an upper limit"):
        pattern_of(pattern)


@pytest.mark.parametrize(
    "pattern", [SERIAL, MAC, r"\S{1,40}@\S{1,40}", "geheim", r"(?<=key=)\S+", r"(?:one|two)-\d{3,}", r"(?:ab)+c"]
)
def test_usual_patterns_are_accepted(pattern):
    assert pattern_of(pattern).pattern == pattern


@pytest.mark.parametrize(
    ("patterns", "error", "said"),
    [
        (["(a"], InvalidValue, "not a regular expression: missing"),
        (["[[a]"], InvalidValue, "not a regular expression: Possible nested set"),
        (["a*"], InvalidValue, "matches empty text"),
        (["^"], InvalidValue, "matches empty text"),
        ([""], InvalidValue, "matches empty text"),
        ([5], InvalidType, "as text"),
        ("SN-1", InvalidType, "write a list"),
        (None, InvalidType, "write a list"),
        (7, InvalidType, "write a list"),
    ],
)
def test_a_wrong_pattern_has_a_named_error(patterns, error, said):
    with pytest.raises(error, match=said):
        App("app", redact=patterns)


class Settings(BaseModel):
    hide: bool = False


def test_the_settings_may_decide_what_is_hidden():
    app = App("app", settings=Settings, redact=lambda settings: [SERIAL] if settings.hide else [])

    for hide in (True, False):
        with app.unloaded():
            app.load(Where.nowhere({"hide": hide}))
            assert clean("SN-12345678") == ("***" if hide else "SN-12345678")
        gc.collect()
        assert clean("SN-12345678") == "SN-12345678"


@pytest.mark.parametrize(
    ("make", "error", "said"),
    [
        (lambda settings: ["(a"], InvalidValue, "not a regular expression"),
        (lambda settings: None, InvalidType, "write a list"),
        (lambda settings: [settings.hidden], InvalidValue, "redact: .*AttributeError.*no attribute 'hidden'"),
    ],
)
def test_wrong_patterns_of_the_settings_have_a_named_error(make, error, said):
    app = App("app", settings=Settings, redact=make)

    with pytest.raises(error, match=said), app.unloaded():
        app.load(Where.nowhere({}))


@given(st.text("ab.\\d()[]{}+*?|^$1,2", max_size=14))
def test_every_text_is_a_pattern_or_a_named_error_and_a_pattern_ends_on_long_texts(text):
    try:
        pattern = pattern_of(text)
    except ConfigurationError:
        return
    for hard in ("a" * 300 + "!", "ab" * 150 + "!", "1" * 300 + "!"):  # an exponential one would not end
        assert isinstance(pattern.sub("", hard), str)


@given(st.text(min_size=MIN_SECRET_CHARS).filter(lambda secret: "*" not in secret), st.text(), st.text())
def test_any_secret_is_hidden_in_any_text(text, before, after):
    secret = Secret(text)
    forms = (text, repr(text)[1:-1], json.dumps(text)[1:-1], quote(text, safe=""), text.encode().hex())

    for form in forms:
        assert form not in without_secrets(f"{before}{form}{after}")
        assert form not in without_secrets(f"{before}{form}")
    assert secret == text


@example("0" * 15, "")
@example("ab" * 12, "ab")
@example("00000......0", "")
@given(st.text(min_size=12).filter(lambda secret: "*" not in secret), st.text(max_size=10))
def test_what_a_cut_has_left_of_any_secret_is_hidden(text, before):
    assume(text[:8] not in before + text[:7])
    secret = Secret(text)

    assert secret[:8] not in without_secrets(f"{before}{text[:-1]}…")


@given(st.lists(st.text(alphabet="abc/?#:@&=%,.", max_size=8), max_size=12).map("".join))
def test_any_text_may_be_a_secret_url(text):
    secret = Secret(f"https://{text}")

    assert str(secret) in secret.hidden
    assert Address(f"nats://{text}").hidden <= Secret(f"nats://{text}").hidden


def test_a_secret_shows_itself_nowhere_but_is_the_text_that_it_was():
    secret = Secret("canary eleven")

    assert (f"{secret!r}", secret == "canary eleven", json.dumps(secret)) == ("'***'", True, '"canary eleven"')
