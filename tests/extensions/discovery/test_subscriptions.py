"""What an app subscribes to beside what discovery subscribes to."""

import re

import pytest

from leadsman import App, Discovery
from leadsman.errors import InvalidValue


@pytest.mark.parametrize(
    ("topic_filter", "taken"),
    [
        ("homeassistant/#", "homeassistant/device/app/+/config"),
        ("homeassistant/status", "homeassistant/status"),
        ("homeassistant/+", "homeassistant/status"),
    ],
)
def test_a_filter_that_would_take_messages_from_discovery_is_refused(topic_filter, taken):
    app = App("app", discovery="homeassistant")
    app.add_subscription(topic_filter, lambda: None)

    with pytest.raises(InvalidValue, match=f"overlaps with '{re.escape(taken)}', to which discovery subscribes"):
        app.load()


@pytest.mark.parametrize(
    ("topic_filter", "options"),
    [
        ("homeassistant/#", {}),
        ("homeassistant/#", {"discovery": Discovery(prefix="ha")}),
        ("homeassistant/sensor/+/state", {"discovery": "homeassistant"}),
    ],
)
def test_a_filter_that_takes_nothing_from_discovery_is_accepted(topic_filter, options):
    app = App("app", **options)
    app.add_subscription(topic_filter, lambda: None)

    app.load()
