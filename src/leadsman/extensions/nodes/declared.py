"""The types of what nodes add to the documents of their app. The document of a node is in
`leadsman.extensions.nodes.document`."""

from collections.abc import Mapping
from typing import (
    NotRequired,  # pydantic wants this one before Python 3.12
)

from typing_extensions import TypedDict

from leadsman.core.extension import Documents
from leadsman.core.monitoring.document import NodeSection
from leadsman.core.mqtt.topics import Topics
from leadsman.extensions.nodes.brief import Brief


class NodesOfApp(TypedDict):
    """The nodes in the section of the app."""

    node: NotRequired[NodeSection]
    """This node. Present only with ``--standby``."""
    nodes: NotRequired[list[Brief]]
    """The nodes that share the app, this one included. Present only in an app that several share."""


def _messages(topics: Topics, shared: bool) -> Mapping[str, Mapping[str, object]]:  # as `Documents.of_app`
    if not shared:
        return {}
    from leadsman.core.introspection.document import Answer
    from leadsman.core.introspection.schema import schema_of
    from leadsman.extensions.nodes import document, report

    drain = topics.drain("+")
    return {
        topics.of_node("+"): schema_of(document.NodeDocument),
        drain: schema_of(report.DrainRequest) | {"direction": "in"},
        f"{drain}/response": schema_of(Answer) | {"description": "Its data is described by #drained."},
        "#drained": schema_of(report.Drained),
    }


DOCUMENTS = Documents(app=NodesOfApp, of_app=_messages)
