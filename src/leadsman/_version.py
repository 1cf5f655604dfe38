"""The version, where both the package and its build find it."""

__version__ = "0.1.0"
"""The version of leadsman."""
UNVERSIONED = "0"
"""The version of an app without one; a person is not shown it."""
