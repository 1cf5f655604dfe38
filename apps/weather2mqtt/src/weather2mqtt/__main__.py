"""``python -m weather2mqtt``."""

from weather2mqtt import main

raise SystemExit(main(None))
