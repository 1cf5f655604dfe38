"""``python -m vito2mqtt``."""

from vito2mqtt import main

raise SystemExit(main(None))
