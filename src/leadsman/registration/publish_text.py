"""Publish rules as text, for settings: as they are written in code, such as ``OnChange(0.2) | Every('10m')``."""

import ast
from collections.abc import Callable, Mapping

from leadsman.errors import ConfigurationError, InvalidType, InvalidValue
from leadsman.readings.publish import Every, OnChange, Rule
from leadsman.text import clean, suggestion

RULES: Mapping[str, Callable[..., Rule]] = {"OnChange": OnChange, "Every": Every}
LONGEST = 1000
"""Characters; a rule has a hundred."""
_EXAMPLE = "write a rule as in code, such as \"OnChange(0.2) | Every('10m')\""


def publish_rule(text: object) -> Rule:
    """Read a publish rule. Python's parser reads it, and nothing of it is executed.

    Raises:
        InvalidType, InvalidValue: it is none.
    """
    if not isinstance(text, str):
        raise InvalidType(f"it is {text!r}; {_EXAMPLE}")
    if len(text) > LONGEST:
        raise InvalidValue(f"it has {len(text)} characters; {_EXAMPLE}")
    try:
        tree = ast.parse(text.strip(), mode="eval").body
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        raise InvalidValue(f"{clean(text)!r} is no publish rule; {_EXAMPLE}") from None
    return _rule(tree, text)


def _rule(node: ast.expr, text: str) -> Rule:
    match node:
        case ast.BinOp(left=left, op=ast.BitOr(), right=right):
            return _rule(left, text) | _rule(right, text)
        case ast.BinOp(left=left, op=ast.BitAnd(), right=right):
            return _rule(left, text) & _rule(right, text)
        case ast.Call(func=ast.Name(id=name), args=args, keywords=keywords) if name in RULES:
            try:
                given = [ast.literal_eval(each) for each in args]
                named = {each.arg: ast.literal_eval(each.value) for each in keywords if each.arg is not None}
                if len(named) < len(keywords):
                    raise ValueError
                return RULES[name](*given, **named)
            except ConfigurationError:
                raise
            except (ValueError, TypeError, RecursionError):
                raise InvalidValue(f"{clean(ast.unparse(node))!r} is not what {name} takes; {_EXAMPLE}") from None
        case ast.Call(func=ast.Name(id=name)) | ast.Name(id=name) if name not in RULES:
            raise InvalidValue(f"no publish rule is called {clean(name)!r}; {suggestion(name, RULES)}")
    raise InvalidValue(f"{clean(text)!r} is no publish rule; {_EXAMPLE}")
