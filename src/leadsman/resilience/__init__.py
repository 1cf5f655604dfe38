"""Retry, backoff, circuit breaker and timeout: pure values that decide, and one module, `execution`, that makes and
guards the calls."""
