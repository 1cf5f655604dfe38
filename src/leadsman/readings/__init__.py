"""What a handler gives: readings and their fields, buffers, publish rules, and what a field measures or sets."""
