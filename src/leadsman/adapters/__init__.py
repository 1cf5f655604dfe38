"""Adapters: one bus each. They move bytes, translate foreign errors, and know nothing of MQTT, policies or the app."""
