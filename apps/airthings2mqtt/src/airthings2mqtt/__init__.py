"""Radon and air of Airthings Wave, Wave 2, Wave Plus and Wave Mini, over Bluetooth."""

from airthings2mqtt.app import app, main

__all__ = ["app", "main"]
