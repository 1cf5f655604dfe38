"""A second machine that takes over: one node of an app owns its client id, and the others stand by."""
