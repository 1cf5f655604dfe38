"""Retry, backoff, breaker and timeout: an algebra of small values, and one place that awaits."""
