"""Adapters: each one speaks to one kind of bus. They move bytes and translate errors of libraries. They know
nothing of MQTT, policies or the app."""
