"""The rows of the trace in a state file, as a program of a user reads them."""

import contextlib
import json
import sqlite3


def trace_rows(path):
    """The rows, oldest first, numbered over all lives of the app; none without a file, or before it has tables."""
    if not path.exists():
        return []
    rows, tracebacks = [], {}
    with contextlib.closing(sqlite3.connect(f"{path.as_uri()}?mode=ro", uri=True)) as database:
        if not database.execute("SELECT 1 FROM sqlite_master WHERE name = 'trace'").fetchone():
            return []
        for number, document in database.execute("SELECT number, document FROM trace ORDER BY number").fetchall():
            row = json.loads(document)
            if row.pop("repeated", False):
                row["traceback"] = tracebacks[row["handler"]]
            elif "traceback" in row:
                tracebacks[row["handler"]] = row["traceback"]
            rows.append(row | {"number": number})
    return rows
