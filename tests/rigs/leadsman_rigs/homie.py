"""Checks a tree of topics against the Homie convention 5.0, sentence by sentence.

It shares no code with the convention in the package. Each rule has the heading of its paragraph and the sentence.
"""

import json
import re
from collections.abc import Callable, Iterator, Mapping
from datetime import datetime

Tree = Mapping[str, bytes]
"""The retained payloads below ``homie/5``, by topic."""
Rule = Callable[[Tree], Iterator[str]]
RULES: dict[str, Rule] = {}
STATES = {b"init", b"ready", b"disconnected", b"sleeping", b"lost"}
DATATYPES = {"integer", "float", "boolean", "string", "enum", "color", "datetime", "duration", "json"}
ID = re.compile(r"[a-z0-9-]+")
INTEGER = re.compile(r"-?[0-9]+")
FLOAT = re.compile(r"-?([0-9]+\.?[0-9]*|\.[0-9]+)([eE]-?[0-9]+)?")


def rule(sentence: str) -> Callable[[Rule], Rule]:
    def keep(function: Rule) -> Rule:
        RULES[sentence] = function
        return function

    return keep


def violations(tree: Tree) -> list[str]:
    """What is wrong with a tree, as ``rule: topic``."""
    return [f"{sentence}: {where}" for sentence, check in RULES.items() for where in check(tree)]


def of_devices(tree: Tree, attribute: str) -> dict[str, bytes]:
    return {topic.split("/")[2]: payload for topic, payload in tree.items() if topic.split("/")[3:] == [attribute]}


def documents(tree: Tree) -> dict[str, dict]:
    """The descriptions that are JSON objects, by device."""
    found = {}
    for device, payload in of_devices(tree, "$description").items():
        try:
            document = json.loads(payload)
        except ValueError:
            continue
        if isinstance(document, dict):
            found[device] = document
    return found


def properties(tree: Tree) -> Iterator[tuple[str, dict]]:
    """The attributes of all properties, by their topics."""
    for device, document in documents(tree).items():
        for node, inner in document.get("nodes", {}).items():
            for key, attributes in inner.get("properties", {}).items():
                yield f"homie/5/{device}/{node}/{key}", attributes


def values(tree: Tree) -> Iterator[tuple[str, dict, str]]:
    """The properties that have a value, with it."""
    for topic, attributes in properties(tree):
        if topic in tree:
            yield topic, attributes, tree[topic].decode()


@rule('Topic IDs: "MAY ONLY contain lowercase letters from a to z, numbers from 0 to 9 as well as the hyphen"')
def ids(tree):
    for topic in tree:
        if not all(ID.fullmatch(level.removeprefix("$")) for level in topic.split("/")):
            yield topic
    for topic, _ in properties(tree):
        if not all(ID.fullmatch(level) for level in topic.split("/")):
            yield topic


@rule('Base Topic: "the /5/ segment must be retained"')
def base(tree):
    yield from (topic for topic in tree if topic.split("/")[1] != "5")


@rule('Payloads: "MUST be sent as a UTF-8 encoded string"; "MUST NOT include the UTF-8 BOM"')
def text(tree):
    for topic, payload in tree.items():
        try:
            payload.decode()
        except UnicodeDecodeError:
            yield topic
        if payload.startswith(b"\xef\xbb\xbf"):
            yield topic


@rule('Device Lifecycle: "A device exists once a valid value is set in the $state attribute"')
def states(tree):
    found = of_devices(tree, "$state")
    for device in {topic.split("/")[2] for topic in tree}:
        if found.get(device) not in STATES:
            yield device


@rule('Device Attributes: "$description: yes, the description document (JSON)"')
def descriptions(tree):
    known = documents(tree)
    yield from (device for device in of_devices(tree, "$state") if device not in known)


@rule('Device Attributes: "the format is 5.x, where the x is the minor version"')
def convention_version(tree):
    for device, document in documents(tree).items():
        if not re.fullmatch(r"5\.[0-9]+", str(document.get("homie"))):
            yield device


@rule('Device Attributes: "version, integer, required"; "name, string, required"')
def required(tree):
    for device, document in documents(tree).items():
        version = document.get("version")
        if not isinstance(version, int) or isinstance(version, bool) or not isinstance(document.get("name"), str):
            yield device


@rule('Device Attributes: "root: Required if the device is NOT the root device, MUST be omitted otherwise"')
def roots(tree):
    known = documents(tree)
    children = {child for document in known.values() for child in document.get("children", [])}
    for device, document in known.items():
        if (device in children) != ("root" in document) or document.get("root", device) not in known:
            yield device


@rule('Device hierarchy: "there is only one root device, which is the top-level device that has no parent"')
def hierarchy(tree):
    known = documents(tree)
    for device, document in known.items():
        parent = document.get("parent", document.get("root"))
        if parent is not None and device not in known.get(parent, {}).get("children", []):
            yield device
        yield from (child for child in document.get("children", []) if child not in known)


@rule('Property Attributes: "datatype, string, required: any of the following values"')
def datatypes(tree):
    yield from (topic for topic, attributes in properties(tree) if attributes.get("datatype") not in DATATYPES)


@rule('Property Attributes: "settable, boolean"; "retained, boolean"; "unit, string"; "name, string"; none nullable')
def types(tree):
    kinds = {"settable": bool, "retained": bool, "unit": str, "name": str, "format": str}
    for topic, attributes in properties(tree):
        if not all(isinstance(attributes[key], kind) for key, kind in kinds.items() if key in attributes):
            yield topic


@rule('Formats: "Individual values can not be an empty string, hence at least 1 value must be specified"')
def enums(tree):
    for topic, attributes in properties(tree):
        if attributes.get("datatype") == "enum" and not all(str(attributes.get("format", "")).split(",")):
            yield topic


@rule('Formats: "[min]:[max][:step] where min and max are the minimum and maximum (inclusive)"; step "greater than 0"')
def ranges(tree):
    for topic, attributes in properties(tree):
        if attributes.get("datatype") in ("integer", "float") and "format" in attributes:
            number = INTEGER if attributes["datatype"] == "integer" else FLOAT
            parts = attributes["format"].split(":")
            good = len(parts) in (2, 3) and all(not part or number.fullmatch(part) for part in parts[:2])
            if not good or (len(parts) == 3 and not (number.fullmatch(parts[2]) and float(parts[2]) > 0)):
                yield topic


@rule('Devices: a value belongs to a property that "the description document" describes')
def described(tree):
    known = {topic for topic, attributes in properties(tree) if attributes.get("retained", True)}
    for topic in tree:
        levels = topic.split("/")
        if not levels[3].startswith("$") and topic not in known:
            yield topic


@rule('QoS and retained messages: values of "non-retained properties must use non-retained messages"')
def events(tree):
    yield from (
        topic for topic, attributes in properties(tree) if not attributes.get("retained", True) and topic in tree
    )


@rule('Integer: "The payload may only contain whole numbers and the negation character"; 64 bits')
def integers(tree):
    for topic, attributes, value in values(tree):
        good = INTEGER.fullmatch(value) and -(2**63) <= int(value) <= 2**63 - 1
        if attributes["datatype"] == "integer" and not good:
            yield topic


@rule('Float: "whole numbers, the negation character -, the exponent character e or E and the decimal separator ."')
def floats(tree):
    for topic, attributes, value in values(tree):
        if attributes["datatype"] == "float" and not FLOAT.fullmatch(value):
            yield topic


@rule('Boolean: "must be converted to the string literals true or false"')
def booleans(tree):
    for topic, attributes, value in values(tree):
        if attributes["datatype"] == "boolean" and value not in ("true", "false"):
            yield topic


@rule('Enum: "must be one of the values specified in the format definition of the property"')
def members(tree):
    for topic, attributes, value in values(tree):
        if attributes["datatype"] == "enum" and value not in attributes["format"].split(","):
            yield topic


@rule('DateTime: "must use the ISO 8601 format"')
def times(tree):
    for topic, attributes, value in values(tree):
        if attributes["datatype"] == "datetime":
            try:
                datetime.fromisoformat(value)
            except ValueError:
                yield topic


@rule('JSON: "The payload MUST be either a JSON-Array or JSON-Object type"')
def objects(tree):
    for topic, attributes, value in values(tree):
        if attributes["datatype"] == "json":
            try:
                if not isinstance(json.loads(value), dict | list):
                    yield topic
            except ValueError:
                yield topic


@rule('Empty string values: "represented by a 1-character string containing a single byte value 0"')
def empties(tree):
    yield from (topic for topic, payload in tree.items() if not payload)
    for topic, attributes, value in values(tree):
        if value == "\0" and attributes["datatype"] != "string":
            yield topic


@rule('Alert topic: "homie / 5 / [device ID] / $alert / [alert ID]"')
def alerts(tree):
    for topic in tree:
        levels = topic.split("/")
        if levels[3] == "$alert" and (len(levels) != 5 or not ID.fullmatch(levels[4])):
            yield topic
