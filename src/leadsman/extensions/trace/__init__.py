"""The latest failures of each device, and what was decided about them."""
