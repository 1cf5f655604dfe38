"""The parts of a running app: they poll, execute commands, publish, and keep state."""
