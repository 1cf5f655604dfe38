"""``python -m meter2mqtt``."""

from meter2mqtt import main

raise SystemExit(main(None))
