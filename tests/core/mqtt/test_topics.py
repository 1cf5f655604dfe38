from urllib.parse import unquote_to_bytes

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from leadsman.core.mqtt.topics import (
    DOCTOR,
    MAX_NAME_BYTES,
    RESERVED,
    Topics,
    check_client_id,
    check_name,
    check_prefix,
    encode,
    encode_fields,
    escaped_name,
    topic_matches,
)
from leadsman.errors import InvalidType, InvalidValue
from leadsman_rigs.examples import examples

LEVELS = st.lists(st.sampled_from(["a", "b", "c"]), min_size=1, max_size=4)


def test_all_topics_of_an_app_lie_below_its_prefix():
    topics = Topics("home/gas")

    assert (topics.status, topics.error) == ("home/gas/status", "home/gas/error")
    assert topics.state("meter") == "home/gas/meter/state"
    assert topics.availability("meter") == "home/gas/meter/availability"
    assert topics.device_error("meter") == "home/gas/meter/error"
    assert topics.set_result("meter") == "home/gas/meter/set/result"
    assert topics.of("+", "get") == "home/gas/+/get"


@pytest.mark.parametrize("prefix", ["app", "home/gas"])
def test_the_device_of_a_topic_is_found_again(prefix):
    topics = Topics(prefix)

    assert topics.device_of(topics.of("meter", "set")) == "meter"
    assert topics.device_of(topics.of("meter", "circuit/set")) == "meter"


@pytest.mark.parametrize(
    ("topic", "may"),
    [
        ("app/answers/tool-1", True),
        ("app/x", True),
        ("application/x", False),
        ("elsewhere/x", False),
        ("app/kitchen/set", False),
        ("app/kitchen/state", False),
        ("app/+/x", False),
        ("app/x\n", False),
        ("app/" + "x" * 500, False),
        ("app/\ud800", False),
    ],
)
def test_an_answer_goes_only_below_the_prefix_and_to_no_topic_with_a_meaning(topic, may):
    assert Topics("app").may_answer(topic) is may


@pytest.mark.parametrize(
    ("topic_filter", "topic", "matches"),
    [
        ("a/b", "a/b", True),
        ("a/+", "a/b", True),
        ("+/b", "a/b", True),
        ("a/#", "a/b/c", True),
        ("a/#", "a", True),
        ("#", "a/b", True),
        ("a/+", "a", False),
        ("a/+", "a/b/c", False),
        ("a/b", "a/b/c", False),
        ("a/b/c", "a/b", False),
    ],
)
def test_filters_take_in_topics_as_the_specification_says(topic_filter, topic, matches):
    assert topic_matches(topic_filter, topic) is matches


@given(LEVELS, st.data())
def test_a_filter_still_matches_when_levels_become_wildcards(levels, data):
    wild = [data.draw(st.sampled_from([level, "+"])) for level in levels]
    cut = data.draw(st.integers(0, len(levels)))

    assert topic_matches("/".join(wild), "/".join(levels))
    assert topic_matches("/".join([*wild[:cut], "#"]), "/".join(levels))


@pytest.mark.parametrize("name", ["kitchen", "Küche", "a b", "1"])
def test_a_name_of_one_level_is_taken(name):
    assert check_name(name) == name


@pytest.mark.parametrize("name", sorted(RESERVED))
def test_a_name_with_a_meaning_of_its_own_is_refused_with_another_one(name):
    with pytest.raises(InvalidValue, match=f"write '{name}_1'"):
        check_name(name)


ODD = (
    "a",
    "b",
    "ä",
    "a\u0308",
    "A",
    "/",
    "+",
    "#",
    "$",
    "\0",
    "\n",
    "\x9f",
    "\ud800",
    "\u2028",
    "\u202e",
    ".",
    "..",
    "%2F",
    " ",
)
NAMES = st.text(max_size=8) | st.lists(st.sampled_from([*ODD, "x" * 190, "ü" * 95, *RESERVED]), max_size=4).map("".join)
WORDS = sorted(RESERVED - {DOCTOR} | {"set/result", "hold/set", "release/set", "circuit/set"})


def topics_of(name):
    """All topics of a device; none if the name is refused."""
    topics = Topics("house")
    try:
        check_name(name)
    except InvalidValue:
        return []
    return [
        *(topics.state(name), topics.availability(name), topics.device_error(name), topics.set_result(name)),
        *(topics.of(name, word) for word in WORDS),
    ]


@settings(max_examples=examples(500))
@given(NAMES, NAMES)
def test_two_names_never_share_a_topic_and_no_name_reaches_a_topic_of_the_app(name, other):
    own = {"house/status", "house/error", "house/introspect", "house/introspect/response", "house/registry"}

    assert own.isdisjoint(topics_of(name))
    assert name == other or set(topics_of(name)).isdisjoint(topics_of(other))


@settings(max_examples=examples(500))
@given(NAMES)
def test_a_topic_of_a_name_is_one_that_mqtt_allows_and_the_name_is_found_in_it(name):
    for topic in topics_of(name):
        levels = topic.split("/")
        assert levels[0] == "house"
        assert levels[1] == name == Topics("house").device_of(topic)
        assert not set(topic) & set("+#\0")
        assert not any("\ud800" <= c <= "\udfff" or c < " " or "\x7f" <= c <= "\x9f" for c in topic)  # MQTT 5 §1.5.4
        assert not name.startswith("$")
        assert len(topic.encode()) <= MAX_NAME_BYTES + 30


@pytest.mark.parametrize(
    ("name", "advice"),
    [
        ("a/b", "such as 'a_b'"),
        ("", "such as 'kitchen'"),
        (" a", "such as 'kitchen'"),
        ("a+", "'\\+'"),
        ("a\x00", "control characters"),
        ("$SYS", "leave it out"),
        ("x" * (MAX_NAME_BYTES + 1), f"{MAX_NAME_BYTES} are allowed"),
    ],
)
def test_a_name_that_is_no_level_is_refused_with_advice(name, advice):
    with pytest.raises(InvalidValue, match=advice):
        check_name(name)


def test_a_prefix_may_have_several_levels_and_none_of_them_is_empty():
    assert check_prefix("home/gas") == "home/gas"
    with pytest.raises(InvalidValue, match="write 'home/gas'"):
        check_prefix("home//gas")


@pytest.mark.parametrize("check", [check_name, check_prefix, check_client_id])
def test_what_is_no_text_is_refused(check):
    with pytest.raises(InvalidType, match="write text"):
        check(5)


@pytest.mark.parametrize("client_id", ["", "a\n", "x" * (MAX_NAME_BYTES + 1)])
def test_a_client_id_that_a_broker_may_refuse_is_refused_here(client_id):
    with pytest.raises(InvalidValue, match="printable"):
        check_client_id(client_id)


values = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text()


@given(st.dictionaries(st.text(), st.integers() | st.floats(allow_nan=False, allow_infinity=False) | values))
def test_the_fields_of_a_reading_are_written_as_any_other_document(fields):
    try:
        expected = encode(fields)
    except UnicodeEncodeError:  # half a surrogate pair, which no reading contains
        return
    assert encode_fields(fields) == expected


NAMES = st.one_of(
    st.text(max_size=80),
    st.text(st.sampled_from("%/+#$ \n\u00e4a2F"), max_size=12),
    st.sampled_from(sorted(RESERVED)),
)


@given(NAMES.filter(bool))
def test_a_text_from_outside_becomes_a_name_from_which_it_can_be_read_again(text):
    try:
        name = escaped_name(text)
    except InvalidValue:
        assert len(text) > 200 // 9
        return

    assert check_name(name) == name
    assert unquote_to_bytes(name).decode(errors="surrogatepass") == text


@given(NAMES, NAMES)
def test_two_texts_from_outside_never_have_one_name(one, other):
    try:
        names = escaped_name(one), escaped_name(other)
    except InvalidValue:
        return

    assert (names[0] == names[1]) is (one == other)


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("A4:C1:38:00:00:01", "A4:C1:38:00:00:01"),
        ("Küche", "Küche"),
        ("living room", "living room"),
        ("a/b", "a%2Fb"),
        ("100%", "100%25"),
        ("set", "%73et"),
        (" x ", "%20x%20"),
        (" ", "%20"),
        ("$SYS", "%24SYS"),
        ("a\nb", "a%0Ab"),
        ("\u202ea", "%E2%80%AEa"),
    ],
)
def test_a_name_from_outside_is_escaped_where_a_topic_asks_for_it(text, name):
    assert escaped_name(text) == name


@pytest.mark.parametrize("text", ["", "x" * 201, "/" * 100])
def test_a_name_from_outside_that_cannot_be_one_is_refused(text):
    with pytest.raises(InvalidValue, match="1 to 200 bytes"):
        escaped_name(text)
