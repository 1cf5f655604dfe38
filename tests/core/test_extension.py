"""What extends an app: what `App` takes, and what it says of anything else."""

import pytest

import leadsman
from leadsman import App, Extension
from leadsman.errors import ConfigurationError


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
