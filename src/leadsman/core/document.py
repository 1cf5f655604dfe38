"""The types of times, durations and sizes in the documents of an app: what its topics, its answers and its files have.

A document is a `TypedDict`. The text below a field says what it means and, unless it is always there, when it is. The
JSON Schema and the reference page are made from these types and texts.
"""

from typing import TYPE_CHECKING, Annotated

if TYPE_CHECKING:
    from pydantic import GetJsonSchemaHandler
    from pydantic.json_schema import JsonSchemaValue
    from pydantic_core import CoreSchema


class Written:
    """How a value is written: its words beside the type in the JSON Schema.

    Args:
        words: such as ``unit="s"``.
    """

    def __init__(self, **words: str) -> None:
        self.words = words

    def __get_pydantic_json_schema__(
        self, core_schema: "CoreSchema", handler: "GetJsonSchemaHandler"
    ) -> "JsonSchemaValue":
        """Add the words to the JSON Schema of the value. Called by pydantic."""
        return handler(core_schema) | self.words


Time = Annotated[str, Written(format="date-time")]
"""RFC 3339 in UTC."""
EpochTime = Annotated[float, Written(unit="s since 1970")]
"""Seconds since 1970-01-01 in UTC."""
Seconds = Annotated[float, Written(unit="s")]
Bytes = Annotated[int, Written(unit="B")]
Percent = Annotated[float, Written(unit="%")]
