"""The rules that judge a tree of Homie: each finds what it is about, and a good tree breaks none."""

import json

import pytest

from leadsman_rigs.homie import RULES, violations

ROOT, CHILD = "homie/5/app", "homie/5/app-a"
ATTRIBUTES = {
    "n": {"datatype": "integer", "format": "0:10:2", "settable": True, "unit": "#"},
    "x": {"datatype": "float", "format": ":1.5"},
    "on": {"datatype": "boolean", "name": "On"},
    "mode": {"datatype": "enum", "format": "eco,boost"},
    "at": {"datatype": "datetime"},
    "note": {"datatype": "string"},
    "all": {"datatype": "json"},
    "bell": {"datatype": "boolean", "retained": False},
}
ROOT_DOCUMENT = {"homie": "5.0", "version": 1, "name": "app", "children": ["app-a"]}
VALUES = {
    "n": b"4",
    "x": b"-1e5",
    "on": b"true",
    "mode": b"eco",
    "at": b"2026-11-22T20:00:00Z",
    "note": b"\0",
    "all": b"{}",
}


def child(attributes=ATTRIBUTES, **changes):
    nodes = {"v": {"properties": attributes}}
    return json.dumps({"homie": "5.0", "version": 1, "name": "a", "root": "app", "nodes": nodes} | changes).encode()


def good():
    tree = {f"{ROOT}/$state": b"ready", f"{ROOT}/$description": json.dumps(ROOT_DOCUMENT).encode()}
    tree |= {f"{CHILD}/$state": b"ready", f"{CHILD}/$description": child(), f"{CHILD}/$alert/failing": b"fails"}
    return tree | {f"{CHILD}/v/{key}": value for key, value in VALUES.items()}


def described(**changes):
    """The attributes of a property are changed."""
    return {f"{CHILD}/$description": child({**ATTRIBUTES, **changes})}


CASES = [
    ("Topic IDs", {f"{CHILD}/v/N": b"4", f"{CHILD}/$description": child({**ATTRIBUTES, "N": {"datatype": "string"}})}),
    ("Base Topic", {"homie/4/x/$state": b"ready", "homie/4/x/$description": child(root="x", children=["x"])}),
    ("Payloads", {f"{CHILD}/$alert/failing": b"\xff"}),
    ("Payloads", {f"{CHILD}/$alert/failing": b"\xef\xbb\xbfx"}),
    ("Device Lifecycle", {f"{CHILD}/$state": b"alert"}),
    ("Device Lifecycle", {f"{CHILD}/$state": None}),
    ('Device Attributes: "$desc', {f"{ROOT}/$description": b"[]", f"{CHILD}/$description": b"{"}),
    ('Device Attributes: "the format', {f"{CHILD}/$description": child(homie="5.0.1")}),
    ('Device Attributes: "version', {f"{CHILD}/$description": child(version="1")}),
    ('Device Attributes: "version', {f"{CHILD}/$description": child(name=None)}),
    ('Device Attributes: "root', {f"{CHILD}/$description": child(root="nobody", parent="app")}),
    ("Device hierarchy", {f"{CHILD}/$description": child(parent="other")}),
    ('Property Attributes: "datatype', described(note={"datatype": "text"})),
    ('Property Attributes: "settable', described(note={"datatype": "string", "settable": "yes"})),
    ('Property Attributes: "settable', described(note={"datatype": "string", "unit": None})),
    ('Formats: "Individual', described(mode={"datatype": "enum", "format": "eco,"})),
    ('Formats: "[min]', described(n={"datatype": "integer", "format": "0:10.5"})),
    ('Formats: "[min]', described(n={"datatype": "integer", "format": "0:10:0"})),
    ('Formats: "[min]', described(n={"datatype": "integer", "format": "10"})),
    ("Devices:", {f"{CHILD}/v/unknown": b"1"}),
    ("QoS and retained messages", {f"{CHILD}/v/bell": b"true"}),
    ("Integer", {f"{CHILD}/v/n": b"4.0"}),
    ("Integer", {f"{CHILD}/v/n": b"9223372036854775808"}),
    ("Float", {f"{CHILD}/v/x": b"NaN"}),
    ("Float", {f"{CHILD}/v/x": b"1e+5"}),
    ("Boolean", {f"{CHILD}/v/on": b"True"}),
    ("Enum", {f"{CHILD}/v/mode": b"Eco"}),
    ("DateTime", {f"{CHILD}/v/at": b"yesterday"}),
    ("JSON", {f"{CHILD}/v/all": b"1"}),
    ("JSON", {f"{CHILD}/v/all": b"{"}),
    ("Empty string values", {f"{CHILD}/$alert/failing": b""}),
    ("Empty string values", {f"{CHILD}/v/mode": b"\0"}),
    ("Alert topic", {f"{CHILD}/$alert": b"x"}),
]


def test_a_good_tree_breaks_no_rule():
    assert violations(good()) == []


@pytest.mark.parametrize(("paragraph", "changes"), CASES)
def test_a_tree_that_breaks_a_rule_is_found(paragraph, changes):
    tree = {topic: payload for topic, payload in (good() | changes).items() if payload is not None}

    assert [each for each in violations(tree) if each.startswith(paragraph)]


def test_every_rule_has_a_tree_that_breaks_it():
    assert [sentence for sentence in RULES if not any(sentence.startswith(paragraph) for paragraph, _ in CASES)] == []
