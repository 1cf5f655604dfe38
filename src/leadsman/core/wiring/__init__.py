"""Builds the parts of an app, runs them from the first poll to the end, and stops them."""
