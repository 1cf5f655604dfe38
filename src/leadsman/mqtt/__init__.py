"""MQTT: topics, a bounded outbox, a session that reconnects, and the one file that knows the client library."""
