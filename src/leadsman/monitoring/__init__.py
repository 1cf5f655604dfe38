"""What is known about devices, and where it is reported."""
