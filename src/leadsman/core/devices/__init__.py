"""The devices of a running app, whatever way they came: which there are, who follows them, and where they are read."""
