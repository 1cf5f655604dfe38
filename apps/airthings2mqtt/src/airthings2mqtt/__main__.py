"""``python -m airthings2mqtt``."""

from airthings2mqtt import main

raise SystemExit(main(None))
