"""A record of a library is no error, whatever it has."""

import logging

from leadsman.core.monitoring.log_settings import LevelFilter, Levels


def record(**more):
    made = logging.LogRecord("other", logging.ERROR, "file", 1, "text", (), None)
    made.__dict__.update(more)
    return made


def test_a_record_of_a_library_may_have_fields_of_its_own():
    assert LevelFilter(Levels(20, 30, {}, {"boiler": 10})).filter(record(fields=["a"]))
