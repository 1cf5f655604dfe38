"""The slots of the timers: due times are rounded up to them."""

FINE = 0.005
"""Seconds; the slot of what is due within a second."""
COARSE = 10
"""Fine slots in a coarse one (50 ms), for what is due later than that."""
BATCH = 20
"""Alarms that ring in one turn of the event loop. Each may start a poll, which takes some tenth of a millisecond, and
makes a message. So many may be unacknowledged at a mosquitto that is not configured."""
EPSILON = 1e-6
"""Of a slot: what a float may be off."""
