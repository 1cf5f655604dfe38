"""How deep the lists and objects of a JSON text lie in each other, before it is parsed. Python's parser gives up at a
depth that differs from version to version, and what it has read may be too deep for what follows."""

import re

_STRING = re.compile(r'"(?:[^"\\]|\\.)*+"?', re.DOTALL)
_BRACKET = re.compile(r"[\[\]{}]")


def is_nested_deeper(text: str, levels: int) -> bool:
    """Whether the brackets and braces of a JSON text, those of its strings left out, are open more than `levels` deep
    anywhere. It takes time in proportion to the length, also for a text that is no JSON."""
    if text.count("[") + text.count("{") <= levels:
        return False
    depth = 0
    for bracket in _BRACKET.findall(_STRING.sub("", text)):
        depth += 1 if bracket in "[{" else -1
        if depth > levels:
            return True
    return False
