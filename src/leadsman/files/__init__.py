"""Files that others may have replaced: those of the state directory, and those whose paths are given."""
