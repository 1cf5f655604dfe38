"""Clocks, durations, schedules and the heap of timers."""
