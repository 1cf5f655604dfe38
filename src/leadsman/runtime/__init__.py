"""What happens while an app runs."""
