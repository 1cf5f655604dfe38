"""What a user registers: telemetry, sources and commands, with their options."""
