"""What every app has: registration, polls, retries, the link to the broker, health, and introspection over MQTT."""
