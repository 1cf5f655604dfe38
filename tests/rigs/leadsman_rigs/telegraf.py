"""What Telegraf does with a configuration, as its documentation says of ``inputs.mqtt_consumer``, of the format
``json_v2`` and of ``outputs.influxdb``: which topics it takes, and the points that it makes of a message.

Of the options it knows those that are named here. Another one is an error, and so is what Telegraf refuses when it
starts.
"""

import json
import re
import tomllib
from datetime import datetime
from typing import NamedTuple

CONSUMER = {"servers", "topics", "topic_tag", "qos", "persistent_session", "client_id", "data_format"}
TABLES = {"topic_parsing", "json_v2"}
JSON = {"measurement_name", "timestamp_path", "timestamp_format", "object"}
OBJECT = {"path", "excluded_keys"}
RFC_3339 = "2006-01-02T15:04:05Z07:00"
"""RFC 3339 as a layout of Go's package time. Fractions of a second are read, too."""


class TelegrafError(Exception):
    """Telegraf would write this to its log, and drop the message."""


class Point(NamedTuple):
    """One line for InfluxDB."""

    measurement: str
    tags: dict
    fields: dict
    milliseconds: int

    @property
    def line(self):
        def name(text):
            return re.sub(r"([,= ])", r"\\\1", text)

        tags = "".join(f",{name(key)}={name(value)}" for key, value in sorted(self.tags.items()))
        fields = ",".join(f"{name(key)}={json.dumps(value)}" for key, value in self.fields.items())
        return f"{self.measurement}{tags} {fields} {self.milliseconds}"


class Telegraf:
    """A Telegraf with one input and one output."""

    def __init__(self, configuration):
        read = tomllib.loads(configuration)
        ((self.consumer,), (self.output,)) = read["inputs"]["mqtt_consumer"], read["outputs"]["influxdb"]
        (self.format,) = self.consumer["json_v2"]
        (self.object,) = self.format["object"]
        for table, known in (
            (self.consumer, CONSUMER | TABLES),
            (self.format, JSON),
            (self.object, OBJECT),
            (self.output, {"urls", "database"}),
        ):
            assert set(table) <= known, set(table) - known
        assert self.consumer["data_format"] == "json_v2"
        assert self.object["path"] == "@this", "GJSON's name for the whole document"
        assert self.format["timestamp_format"] == RFC_3339
        assert self.consumer["client_id"] or not self.consumer["persistent_session"]
        for parsing in self.consumer["topic_parsing"]:
            assert set(parsing) == {"topic", "tags"}
            assert parsing["tags"].count("/") == parsing["topic"].count("/"), "tags length does not equal topic length"

    def points(self, topic, payload):
        """The points of a message.

        Raises:
            TelegrafError: it is no JSON, or has no time.
        """
        try:
            document = json.loads(payload)
        except ValueError:
            raise TelegrafError("invalid JSON provided") from None
        at = document.get(self.format["timestamp_path"])
        if at is None:
            raise TelegrafError("the timestamp path returned NULL")
        time = round(datetime.fromisoformat(at).timestamp() * 1000)
        tags = {key: topic for key in [self.consumer.get("topic_tag", "topic")] if key}
        for parsing in self.consumer["topic_parsing"]:
            expected, levels = parsing["topic"].split("/"), topic.split("/")
            if len(levels) == len(expected) and all(
                e in ("+", level) for e, level in zip(expected, levels, strict=True)
            ):
                names = zip(parsing["tags"].split("/"), levels, strict=True)
                tags |= {name: level for name, level in names if name != "_"}
        fields, lists = {}, []
        self._take(document, "", fields, lists)
        points = [fields] if fields or not lists else []
        for name, values in lists:  # an element of a list is a point of its own
            points += [{name: value} for value in values if not isinstance(value, dict | list | None)]
        return [Point(self.format["measurement_name"], tags, each, time) for each in points if each]

    def _take(self, document, before, fields, lists):
        for key, value in document.items():
            name = before + key.replace(" ", "_")
            if name in self.object["excluded_keys"] or value is None:
                continue
            if isinstance(value, dict):
                self._take(value, f"{name}_", fields, lists)
            elif isinstance(value, list):
                lists.append((name, value))
            else:
                fields[name] = float(value) if isinstance(value, int) and not isinstance(value, bool) else value
