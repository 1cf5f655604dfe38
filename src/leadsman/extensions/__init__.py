"""What joins an app that wants it. The core names nothing of it."""
