"""``python -m bluetooth2mqtt``."""

from bluetooth2mqtt import main

raise SystemExit(main(None))
