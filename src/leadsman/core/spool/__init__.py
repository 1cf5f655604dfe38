"""The file below the durable outbox: readings that wait for the broker, and those that it refused. All of it blocks."""
