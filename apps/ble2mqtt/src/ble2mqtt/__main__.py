"""``python -m ble2mqtt``."""

from ble2mqtt import main

raise SystemExit(main(None))
