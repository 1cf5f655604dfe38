"""The event loop: clocks, durations, schedules, the heap of timers, threads, tasks and long work in slices."""
