"""What extends an app: what `App` takes, and what it says of anything else."""

from typing import TypedDict

import pytest

import leadsman
from leadsman import App, Extension
from leadsman.core.introspection.added import AddedSection
from leadsman.errors import ConfigurationError
from leadsman.extension import Documents, JoinPhase, Place
from leadsman.testing import Harness


class Alarm(Extension):
    """Adds nothing."""

    name = "alarm"


class Nameless(Extension):
    """Has no name."""


class Loud(Extension):
    """Has a name that no variable can begin with."""

    name = "Loud-Alarm"


def test_an_app_has_the_extensions_that_it_was_given():
    alarm = Alarm()

    app = App("house", extensions=[alarm])

    app.load()
    assert app.setup.extensions == (alarm,)
    assert app.plan({}).extensions == (alarm,)


def test_an_app_without_extensions_has_none():
    assert App("house").setup.extensions == ()


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ("alarm", "extensions is 'alarm'; write a list of them: extensions=[Alarm()]"),
        (Alarm(), "write a list of them: extensions=[Alarm()]"),
        ([Alarm], "extensions: Alarm is a class; write Alarm()"),
        ([3], "extensions: 3 is no leadsman.Extension; derive its class from that"),
        ([Alarm(), Alarm()], "extensions: two have the name 'alarm'; leave out one, or rename it"),
        ([Nameless()], "extensions: the name of Nameless is ''; write a lower-case letter, and further ones"),
        ([Loud()], "extensions: the name of Loud is 'Loud-Alarm'; write a lower-case letter, and further ones"),
    ],
)
def test_what_is_no_list_of_extensions_is_named_with_what_to_write(given, said):
    with pytest.raises(ConfigurationError) as raised:
        App("house", extensions=given)

    assert said in str(raised.value)


class Level(TypedDict):
    """What two extensions may both add."""

    level: float


class Levels(Level):
    """Has it from another one."""

    width: float


def made(name, **members):
    """An extension of this name."""
    return type(name, (Extension,), {"name": name, **members})()


@pytest.mark.parametrize(
    ("one", "other", "what"),
    [
        ({"commands": {"levels": Place("", "a", "A")}}, {"commands": {"levels": Place("", "b", "B")}}, "the command"),
        ({"documents": Documents(sections=Level)}, {"documents": Documents(sections=Levels)}, "the section"),
        ({"documents": Documents(status=Level)}, {"documents": Documents(status=Levels)}, "the field of the heartbeat"),
        ({"documents": Documents(app=Level)}, {"documents": Documents(app=Levels)}, "the field of the app"),
        ({"documents": Documents(runtime=Level)}, {"documents": Documents(runtime=Levels)}, "the field of a device"),
        (
            {"documents": Documents(of_device={"level": Level})},
            {"documents": Documents(of_device={"level": Levels})},
            "the message of a device at",
        ),
    ],
)
def test_what_two_extensions_both_have_is_an_error_that_names_both_and_says_what_to_do(one, other, what):
    apart = [made("tide", **one), made("well")]
    App("house", extensions=apart).load()

    with pytest.raises(ConfigurationError) as raised:
        App("house", extensions=[*apart, made("flood", **other)])

    name = "levels" if "commands" in one else "level"
    assert str(raised.value) == (
        f"extensions: 'tide' and 'flood' both have {what} {name!r}; leave out one of the two, or rename it there"
    )


def test_one_name_for_different_things_is_no_error():
    documents = Documents(sections=Level, status=Level, app=Level, runtime=Level, of_device={"level": Level})
    check, place = {"level": lambda plan: None}, {"level": Place("", "a", "A")}

    App("house", extensions=[made("tide", documents=documents, checks=check), made("flood", commands=place)]).load()
    App("house", extensions=[made("tide", checks=check), made("flood", checks=check)]).load()


def test_documents_of_another_kind_are_named_with_what_to_write():
    with pytest.raises(ConfigurationError, match=r"documents of 'tide' is 3; write leadsman.extension.Documents\("):
        App("house", extensions=[made("tide", documents=3)])


@pytest.mark.parametrize(
    ("section", "said"),
    [
        ("level", "tide and flood both answer for the section level; leave one of them out of the app"),
        ("trace", "leadsman.extensions.trace.part and tide both answer for the section trace; leave one of them out"),
        ("app", "'app' is a section of leadsman; choose another name"),
        ("fields", "'fields' is a section of leadsman; choose another name"),
    ],
)
def test_a_section_that_another_one_answers_for_ends_the_start_and_names_both(section, said):
    def join(core):
        core.documents.add_section(section, AddedSection(lambda request: ()))

    both = [made(name, joins=lambda self, plan: ((JoinPhase.DOORS, join),)) for name in ("tide", "flood")]

    with pytest.raises(ConfigurationError) as raised, Harness(App("house", mqtt="mqtt://broker", extensions=both)):
        pass

    assert said in str(raised.value)


def test_an_app_that_is_unloaded_keeps_its_extensions():
    app = App("house", extensions=[Alarm()])

    with app.unloaded():
        assert [each.name for each in app.setup.extensions] == ["alarm"]


def test_each_member_of_an_extension_has_a_default_that_adds_nothing():
    bare = Extension()

    assert not bare.options
    assert not bare.commands
    assert not bare.checks
    assert bare.settings is None
    assert [*bare.joins(None)] == [*bare.topics(None)] == []


def test_what_an_extension_needs_is_in_one_public_module():
    public = leadsman.extension

    assert {getattr(public, name) is not None for name in public.__all__} == {True}
    assert public.Extension is Extension
