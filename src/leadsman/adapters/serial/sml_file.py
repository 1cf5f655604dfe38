"""What a file of SML says. pysml reads it; this file alone imports that."""

from leadsman.adapters.serial.sml import SmlValue
from leadsman.errors import GarbledData, missing

try:
    from sml import SmlFrame, SmlGetListResponse
except ImportError as error:
    raise missing("files of SML", "pysml", "sml", error) from error


def values_of(file: bytes) -> list[SmlValue]:
    """The values in a file that `SmlFramer` found, in the order in which the meter says them.

    Raises:
        GarbledData: pysml cannot read it.
    """
    try:
        messages = [message["messageBody"] for message in SmlFrame(file)]
        lists = [body["valList"] for body in messages if isinstance(body, SmlGetListResponse)]
        return [
            SmlValue(entry["objName"], entry["value"], entry.get("unit"))
            for values in lists
            for entry in values
            if isinstance(entry.get("objName"), str) and "value" in entry
        ]
    except Exception as error:  # its own, those of bitstring, and whatever an unusual file leads to
        raise GarbledData(f"a file of SML that cannot be read: {type(error).__name__}: {error}") from error
