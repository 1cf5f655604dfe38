"""What became of each slot of the schedules, and when there were no readings.

Events of the bus and the receipts of readings are all that changes a ledger. Nobody else writes to one.
"""
