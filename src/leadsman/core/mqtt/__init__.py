"""MQTT: topics, a bounded outbox, the connection and its reconnects, and the one file that uses the client library."""
