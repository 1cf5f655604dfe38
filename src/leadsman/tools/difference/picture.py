"""What an app publishes, as a document: a picture of one run, and what two runs have in common. Pure."""

import hashlib
import json
from collections.abc import Collection, Iterable, Mapping
from typing import NamedTuple

from typing_extensions import TypedDict

from leadsman.core.document import Seconds
from leadsman.core.text import count_noun, written_by_newer
from leadsman.errors import LeadsmanError

FORMAT = 1
AGAIN = "leadsman diff house:app --write FILE writes it anew"
MAX_VALUES = 20
"""Values of a place that are in a picture. The digest has the others."""
MAX_CHARS = 200
"""Characters of such a value."""
VERSION = "(version)"
"""In place of a text that is the version of the app or of leadsman, which is another one after each upgrade."""
COMPONENTS = ("cmps", "components")
"""The fields with the entities of a description for Home Assistant, as it abbreviates them and in full."""


class PictureNode(TypedDict):
    """What an app publishes at one place: a topic, a field of a payload, a setting. What is below it is in `fields`."""

    types: list[str]
    """`boolean`, `bytes`, `empty`, `list`, `message`, `null`, `number`, `object`, `text`; `missing` where it is not in
    each document or run."""
    values: list[object]
    """The first 20 values, and of equal ones that follow each other the first; of a list its length."""
    digest: str | None
    """A digest of all values in this order; null if they differ from run to run."""
    fields: "dict[str, PictureNode]"
    """What is below it, by name. The elements of a list are together, as `[]`."""


class Picture(TypedDict):
    """What an app publishes, as `leadsman diff --write` writes it and `--before` reads it."""

    picture: int
    """The version of the format, 1."""
    app: str
    """The name of the app."""
    leadsman: str
    """The version of leadsman that ran it."""
    length: Seconds
    """How long it ran, in virtual time."""
    found: PictureNode
    """What it publishes: in `fields` the settings, the topics, and the entities of Home Assistant."""


class PublishedMessage(NamedTuple):
    """A message of the app."""

    topic: str
    payload: bytes
    retain: bool


MISSING = PictureNode(types=["missing"], values=[], digest="missing", fields={})
"""In place of what only the other run has."""


def found(messages: Iterable[PublishedMessage], settings: Mapping[str, str], versions: Collection[str]) -> PictureNode:
    """What one run of an app published.

    Args:
        messages: in their order.
        settings: what they are set to.
        versions: texts that are `VERSION` here.
    """
    everything = _Place(versions)
    set_to, topics, entities = map(everything.at, ("settings", "topics", "entities"))
    counts: dict[str, int] = {}
    for message in messages:
        counts[message.topic] = counts.get(message.topic, 0) + 1
        topic = topics.at(message.topic)
        topic.types.add("message")
        topic.at("retained").see(message.retain)
        document = _document(message.payload)
        if message.topic.endswith("/config") and isinstance(document, dict):
            device = "/".join(message.topic.split("/")[-3:-1])
            for key in COMPONENTS:
                described = document.get(key)
                if isinstance(described, dict):
                    del document[key]
                    for name, component in described.items():
                        entities.at(f"{device} {name}").see(component)
        topic.at("payload").see(document)
    for name, count in counts.items():
        topics.at(name).at("messages").see(count)
    for name, value in settings.items():
        set_to.at(name).see(value)
    return everything.node()


def steady(one: PictureNode, other: PictureNode) -> PictureNode:
    """What two runs of the same have in common: a value that differs between them is none."""
    same = one["digest"] == other["digest"]
    return PictureNode(
        types=sorted({*one["types"], *other["types"]}),
        values=one["values"] if same else [],
        digest=one["digest"] if same else None,
        fields={
            name: steady(one["fields"].get(name, MISSING), other["fields"].get(name, MISSING))
            for name in dict.fromkeys([*one["fields"], *other["fields"]])
        },
    )


def common(one: Picture, other: Picture) -> Picture:
    """What the pictures of two runs of the same have in common."""
    return Picture(**(one | {"found": steady(one["found"], other["found"])}))


def picture_in(text: str, place: str) -> Picture:
    """The picture in a text.

    Args:
        text: as it was written.
        place: where it is from, for the message.

    Raises:
        LeadsmanError: it is none that this leadsman reads.
    """
    try:
        read = json.loads(text)
        version = read["picture"]
    except (ValueError, TypeError, KeyError, RecursionError):
        raise LeadsmanError(
            f"{place} is no picture of an app; leadsman diff house:app --write FILE writes one"
        ) from None
    if isinstance(version, int) and version > FORMAT:
        raise LeadsmanError(
            f"{place} {written_by_newer(version, FORMAT)}; update leadsman, or let that version compare"
        )
    if version != FORMAT:
        raise LeadsmanError(f"{place} has the format {version!r}, and this leadsman reads {FORMAT}; {AGAIN}")
    if not (
        isinstance(read.get("app"), str) and isinstance(read.get("length"), int | float) and _is_node(read.get("found"))
    ):
        raise LeadsmanError(f"{place} is damaged; {AGAIN}")
    picture: Picture = read
    return picture


def _is_node(given: object) -> bool:
    match given:
        case {"types": [*types], "values": list(), "digest": str() | None, "fields": dict(fields)}:
            return all(isinstance(each, str) for each in types) and all(map(_is_node, fields.values()))
    return False


def _document(payload: bytes) -> object:
    """What a payload says: JSON, else a text, else bytes."""
    if not payload:
        return _EMPTY
    try:
        text = payload.decode()
    except UnicodeDecodeError:
        return payload
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return text


_EMPTY = object()
_NAMES: tuple[tuple[type, str], ...] = ((bool, "boolean"), (int, "number"), (float, "number"), (str, "text"))


class _Place:
    """Gathers what is seen at one place."""

    def __init__(self, versions: Collection[str]) -> None:
        self.types: set[str] = set()
        self._versions = versions
        self.seen = self._objects = 0
        self._values: list[object] = []
        self._last: str | None = None
        self._digest = hashlib.blake2s(digest_size=8)
        self._below: dict[str, _Place] = {}

    def at(self, name: str) -> "_Place":
        """The place of this name below it."""
        place = self._below.get(name)
        if place is None:
            place = self._below[name] = _Place(self._versions)
        return place

    def see(self, value: object) -> None:
        """A value is there."""
        self.seen += 1
        if isinstance(value, dict):
            self.types.add("object")
            self._objects += 1
            for name, each in value.items():
                self.at(name).see(each)
        elif isinstance(value, list):
            self.types.add("list")
            self._keep(count_noun(len(value), "element", "elements"))
            for each in value:
                self.at("[]").see(each)
        elif value is _EMPTY or value is None:
            self.types.add("null" if value is None else "empty")
            self._keep(None)
        elif isinstance(value, bytes):
            self.types.add("bytes")
            self._keep(value.hex())
        else:
            self.types.add(next(name for kind, name in _NAMES if isinstance(value, kind)))
            self._keep(VERSION if isinstance(value, str) and value in self._versions else value)

    def _keep(self, value: object) -> None:
        text = json.dumps(value)
        if text == self._last:
            return
        self._last = text
        self._digest.update(text.encode() + b"\n")
        if len(self._values) < MAX_VALUES:
            self._values.append(value[:MAX_CHARS] if isinstance(value, str) else value)

    def node(self) -> PictureNode:
        """What was seen."""
        for name, each in self._below.items():
            if name != "[]" and each.seen < self._objects:
                each.types.add("missing")
        return PictureNode(
            types=sorted(self.types),
            values=self._values,
            digest=self._digest.hexdigest(),
            fields={name: each.node() for name, each in self._below.items()},
        )
