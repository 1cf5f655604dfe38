"""``python -m leadsman``."""

from leadsman.tools.cli.main import main

raise SystemExit(main())
