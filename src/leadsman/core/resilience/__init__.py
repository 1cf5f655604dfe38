"""Retry, backoff, circuit breaker and timeout: pure values that decide, and an execution, which makes the
calls and guards them."""
