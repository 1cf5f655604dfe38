"""The fault matrix: faults that are produced here, one row each, with what is expected and what was measured.

``make faults`` runs it and prints it; see docs/adr/tests.md.
"""
