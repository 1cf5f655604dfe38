from types import MappingProxyType

import pytest
from hypothesis import given
from hypothesis import strategies as st

from leadsman import is_a, prop
from leadsman.core.resilience.failure import Failure
from leadsman.core.resilience.predicate import Constant, Predicate, predicate, simplify
from leadsman.errors import DeviceTimeout, InvalidType, InvalidValue

UNKNOWN = prop("x-missing") == 1


class Refused(Exception):
    retry_properties = MappingProxyType({"status-code": 503, "x-zone": "cellar", "handler": "forged"})


FAILURE = Failure(
    OSError(19, "No such device: /dev/ttyUSB0"),
    {"handler": "boiler", "adapter": ("SerialPort", "ble"), "interval": 60.0, "breaker": "closed", "verb": "poll"},
    attempts=2,
)


def ask(question, failure=FAILURE):
    return question.answer(failure)


def test_the_runner_and_the_error_both_have_properties():
    assert ask(prop("handler") == "boiler")
    assert ask(prop("errno") == 19)
    assert ask(prop("attempts") >= 2)
    assert ask(prop("interval") < 61)
    assert ask(prop("error-type") == "builtins.OSError")
    assert ask(prop("error-message").contains("ttyUSB0"))


def test_the_bases_of_an_error_are_asked_for_by_name_so_that_a_file_imports_nothing():
    failure = Failure(DeviceTimeout("late"))

    assert ask(prop("error-bases") == "builtins.OSError", failure)
    assert ask(prop("error-bases").matches("leadsman.errors.Trans*"), failure)
    assert ask(prop("error-bases") == "builtins.KeyError", failure) is False
    assert ask(prop("error-bases") != "builtins.KeyError", failure)


def test_an_exception_may_carry_properties_of_its_own_but_not_forge_those_of_the_runner():
    failure = Failure(Refused(), {"handler": "api"})

    assert ask(prop("status-code") == 503, failure)
    assert ask(prop("x-zone") == "cellar", failure)
    assert ask(prop("handler") == "api", failure)


def test_the_status_of_an_http_answer_is_found_as_libraries_carry_it():
    class Answer:
        status_code = 404

    by_response, by_status = Exception(), Exception()
    by_response.response, by_status.status = Answer(), 429

    assert ask(prop("status-code") == 404, Failure(by_response))
    assert ask(prop("status-code") == 429, Failure(by_status))
    assert ask(prop("status-code").exists(), Failure(Exception())) is False


@pytest.mark.parametrize(
    ("question", "answer"),
    [
        (prop("errno") != 5, True),
        (prop("errno") > 19, False),
        (prop("errno") >= 19, True),
        (prop("errno") < 19, False),
        (prop("errno") <= 19, True),
        (prop("errno").exists(), True),
        (prop("gatt-code").exists(), False),
        (prop("errno").in_(5, 19), True),
        (prop("adapter").in_("ble", "i2c"), True),
        (prop("handler").in_("a", "b"), False),
        (prop("handler").matches("b*r"), True),
        (prop("handler").matches("B*"), False),
        (prop("error-message").regex(r"tty[A-Z]+\d$"), True),
        (prop("handler").starts_with("boi"), True),
        (prop("handler").contains("z"), False),
        (is_a(OSError), True),
        (is_a(ValueError, KeyError), False),
        (Constant(True), True),
        (Constant(False), False),
        (UNKNOWN, None),
        (prop("handler") > 5, None),
        (prop("errno") == "19", True),
    ],
)
def test_every_question_has_its_answer(question, answer):
    assert ask(question) is answer


def test_a_property_that_is_missing_is_unknown_also_under_not():
    assert ask(UNKNOWN) is None
    assert ask(~UNKNOWN) is None
    assert ask(UNKNOWN & Constant(False)) is False
    assert ask(UNKNOWN | Constant(True)) is True
    assert ask(UNKNOWN & Constant(True)) is None
    assert ask(UNKNOWN | Constant(False)) is None


def questions(*plain):
    return st.recursive(
        st.sampled_from(plain),
        lambda inner: st.one_of(
            st.builds(lambda a, b: a & b, inner, inner),
            st.builds(lambda a, b: a | b, inner, inner),
            st.builds(lambda a: ~a, inner),
        ),
    )


QUESTIONS = questions(Constant(True), Constant(False), UNKNOWN)
STATIC = {"handler": "boiler", "adapter": ("SerialPort", "ble"), "interval": 60.0, "verb": "poll"}
MIXED = questions(
    Constant(True),
    UNKNOWN,
    is_a(OSError),
    prop("errno") == 19,
    prop("handler") == "boiler",
    prop("handler") == "radio",
    prop("handler") > 5,
    prop("adapter") != "ble",
    prop("interval") >= 30,
    prop("breaker") == "closed",
)


@given(MIXED, st.sampled_from([FAILURE, Failure(ValueError("odd"), FAILURE.facts), Failure(Refused(), STATIC)]))
def test_what_is_left_to_ask_has_the_same_answer(question, failure):
    assert ask(simplify(question, STATIC), failure) is ask(question, failure)


def test_what_a_handler_alone_decides_is_left_as_a_constant():
    radio, late = prop("handler") == "radio", prop("errno") == 19

    assert simplify(radio, STATIC) == simplify(radio & late, STATIC) == Constant(False)
    assert simplify(~(~radio | late), STATIC) == Constant(False)
    assert simplify(~radio, STATIC) == simplify(~radio | late, STATIC) == Constant(True)
    assert simplify(~radio & late, STATIC) == simplify(radio | late, STATIC) == late
    assert simplify(late, STATIC) == late


@given(QUESTIONS, QUESTIONS, QUESTIONS)
def test_the_logic_is_that_of_kleene(a, b, c):
    assert ask(a & b) is ask(b & a)
    assert ask(a | b) is ask(b | a)
    assert ask(a & (b | c)) is ask((a & b) | (a & c))
    assert ask(~(a & b)) is ask(~a | ~b)
    assert ask(~~a) is ask(a)


@pytest.mark.parametrize(
    ("make", "hint"),
    [
        (lambda: prop("errnum"), "did you mean 'errno'"),
        (lambda: prop(5), "write its name"),
        (lambda: prop("errno") == "ENODEV", "write a number"),
        (lambda: prop("errno") == float("nan"), "NaN"),
        (lambda: prop("errno") == None, "text, a number"),  # noqa: E711  # what a person may write
        (lambda: prop("handler") > "a", "write a number"),
        (lambda: prop("handler").in_(), "no values"),
        (lambda: prop("handler").matches(5), "takes text"),
        (lambda: prop("handler").regex("("), "regex of 'handler'"),
        (lambda: predicate("errno"), "not a predicate"),
        (lambda: is_a(OSError) & "x", "not a predicate"),
    ],
)
def test_a_question_that_makes_no_sense_is_refused_where_it_is_written(make, hint):
    with pytest.raises((InvalidType, InvalidValue), match=hint):
        make()


@pytest.mark.parametrize(
    ("name", "pattern"),
    [
        ("error-message", "io.*"),
        ("error-message", "(io|timeout)"),
        ("error-message", r"^\[Errno \d+\] io"),
        ("error-message", "away$"),
        ("error-message", "(?i)away"),
        ("error-message", "away.+"),
        ("error-type", ".*Timeout.*"),
        ("handler", "attic|loft"),
    ],
)
def test_a_regular_expression_is_refused_as_a_glob_since_it_would_match_nothing(name, pattern):
    with pytest.raises(InvalidValue, match="looks like a regular expression; write regex, in files propRegex"):
        prop(name).matches(pattern)


@pytest.mark.parametrize(
    ("name", "pattern"),
    [("error-type", "httpx.*"), ("error-bases", "*.Bleak*"), ("error-message", "*(busy)*"), ("handler", "p?mp[0-9]")],
)
def test_a_glob_is_taken_for_one(name, pattern):
    prop(name).matches(pattern)


def test_and_and_or_of_python_are_refused_since_they_would_drop_half_the_question():
    with pytest.raises(TypeError, match="& |"):
        bool(is_a(OSError) and is_a(KeyError))


def test_a_predicate_of_ones_own_takes_part():
    class Weekend(Predicate):
        __slots__ = ()

        def answer(self, failure):
            return True

    assert ask(Weekend() & is_a(OSError))


@pytest.mark.parametrize(("name", "pattern"), [("error-message", "timeout"), ("error-type", "TimeoutError")])
def test_a_glob_that_would_match_nothing_but_itself_is_refused_with_what_to_write(name, pattern):
    with pytest.raises(InvalidValue, match=rf"write '\*{pattern}\*' for a part, or == for equality"):
        prop(name).matches(pattern)


@pytest.mark.parametrize(
    ("name", "pattern"),
    [("handler", "boiler"), ("error-type", "builtins.TimeoutError"), ("error-message", "time[d ]out"), ("x-code", "7")],
)
def test_a_plain_word_is_taken_where_it_may_be_meant(name, pattern):
    prop(name).matches(pattern)
