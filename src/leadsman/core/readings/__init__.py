"""What a handler gives: readings, their fields and filters, buffers, publish rules, and what fields measure or set."""
