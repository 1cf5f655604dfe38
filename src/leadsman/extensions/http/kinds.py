"""What the endpoint offers other parts."""

from leadsman.core.introspection.watching import Watching
from leadsman.core.wiring.offers import Kind

WATCHING: Kind[Watching] = Kind("what is kept for people who watch", "leadsman.extensions.http.part")
