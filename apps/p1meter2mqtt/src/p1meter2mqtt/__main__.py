"""``python -m p1meter2mqtt``."""

from p1meter2mqtt import main

raise SystemExit(main(None))
