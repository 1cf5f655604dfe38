"""Leadsman against a bare aiomqtt loop that does the same job: ratios from one run."""
