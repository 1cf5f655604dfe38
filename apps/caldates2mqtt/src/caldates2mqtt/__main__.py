"""``python -m caldates2mqtt``."""

from caldates2mqtt import main

raise SystemExit(main(None))
