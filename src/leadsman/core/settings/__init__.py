"""Settings: a pydantic model filled from flags, secrets, the environment, ``.env`` and a file, each value with its
origin."""
