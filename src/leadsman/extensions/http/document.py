"""The types of what introspection has only while the endpoint is on."""

from typing_extensions import TypedDict

from leadsman.core.extension import Documents
from leadsman.core.introspection.document import Recent


class RecentSection(TypedDict, total=False):
    """The section of the last values."""

    recent: dict[str, Recent]
    """The last values of each device. Present only if the request names this section. Kept only while the HTTP endpoint
    is on."""


DOCUMENTS = Documents(
    sections=RecentSection,
    absent={"recent": "'recent' values are kept only while the HTTP endpoint is on; set http.bind"},
)
