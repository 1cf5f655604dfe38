"""``python -m gas2mqtt``."""

from gas2mqtt import main

raise SystemExit(main(None))
