"""What discovery offers other parts."""

from leadsman.core.wiring.offers import Kind
from leadsman.extensions.discovery.registered import Described

DESCRIBED: Kind[Described] = Kind("the devices as they are described to others", "leadsman.extensions.discovery.part")
