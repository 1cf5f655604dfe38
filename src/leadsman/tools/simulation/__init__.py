"""Simulates a day of a user's app on virtual time, with faults, under several policies: ``leadsman simulate``.

The core decides and computes: which faults a day has (`scenario`), what a day comes to (`outcome`), and how it looks
(`drawing`). The shell runs the app: `simulator` advances the time, stands between the app and its handlers, and listens
to the app.
"""
