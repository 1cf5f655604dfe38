"""Storage on disk: the state directory and its lock, databases in it, and files that others may have replaced."""
