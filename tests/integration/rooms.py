"""Settings of an app with many devices, which several tests use."""

from pydantic import BaseModel


class Room(BaseModel):
    address: int
    every: str = "10s"


class Bus(BaseModel):
    port: str = "/dev/bus"


class Settings(BaseModel):
    rooms: dict[str, Room] = {}
    bus: Bus = Bus()
    offset: float = 0.0


ROOMS = {"kitchen": Room(address=3), "attic": Room(address=4, every="20s")}
