"""The log leaves alone who logs: neither a record of a library nor a stderr that nobody reads is an error there."""

import logging
import sys

from leadsman.monitoring.log_settings import LevelFilter, Levels, LogFile


def record(**more):
    made = logging.LogRecord("other", logging.ERROR, "file", 1, "text", (), None)
    made.__dict__.update(more)
    return made


def test_a_record_of_a_library_may_have_fields_of_its_own():
    assert LevelFilter(Levels(20, 30, {}, {"boiler": 10})).filter(record(fields=["a"]))


def test_a_file_that_cannot_be_written_is_no_error_of_the_caller_if_nobody_reads_stderr(tmp_path, monkeypatch):
    class Gone:
        def write(self, text):
            raise BrokenPipeError

    with LogFileOf(tmp_path) as file:
        monkeypatch.setattr(sys, "stderr", Gone())
        monkeypatch.setattr(file, "shouldRollover", lambda record: 1 / 0)
        file.emit(record())
        assert file.failure


class LogFileOf:
    def __init__(self, directory):
        self.file = LogFile(directory / "a.log", encoding="utf-8")

    def __enter__(self):
        return self.file

    def __exit__(self, *error):
        self.file.close()
