"""Adapters, each for one kind of bus. They move bytes and translate errors of libraries. They have nothing to do with
MQTT, policies or the app."""
