"""Recorded sessions: what went over the wires of an app, kept in a file and played."""
