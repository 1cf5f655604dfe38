"""Observes a running app: health of devices, outages, logs, the heartbeat, the trace, and the watchdog."""
