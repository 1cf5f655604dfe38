"""``python -m leadsman``."""

from leadsman.cli.main import main

raise SystemExit(main())
