"""What the settings change of the log."""

import logging
import logging.handlers
import os
import threading
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from leadsman import App, Context, Finds
from leadsman.core.loop.output import MAX_WAITING_CHARS
from leadsman.core.monitoring.log_format import JournalHandler, TextFormatter
from leadsman.core.monitoring.log_settings import Levels, LogFile, change_log
from leadsman.core.settings.sources import Where
from leadsman.core.text import log_fields
from leadsman.errors import ConfigurationError, InvalidValue

NAMES = st.sampled_from(["leadsman", "leadsman.app", "bleak", "bleak.backends", "x"])
LEVELS = st.sampled_from([10, 20, 30, 40])


@given(st.dictionaries(NAMES, LEVELS), st.dictionaries(st.sampled_from(["b", "b*", "*"]), LEVELS), NAMES)
def test_a_device_counts_before_its_logger_and_the_nearest_logger_before_those_above(loggers, devices, logger):
    levels = Levels(20, 30, loggers, devices)

    found = levels.of(logger, "b")
    assert found == next((devices[key] for key in ("b", "b*", "*") if key in devices), levels.of(logger, None))
    parents = [logger, logger.rpartition(".")[0]]
    default = 20 if logger.startswith("leadsman") else 30
    assert levels.of(logger, None) == next((loggers[name] for name in parents if name in loggers), default)
    assert levels.least <= min([20, *devices.values()])


@pytest.fixture
def ours():
    """The logger of leadsman, as it is in a process of its own; afterwards it is as before."""
    logger, root, library = (logging.getLogger(name) for name in ("leadsman", None, "somelibrary"))
    before = [(each, each.level, each.handlers[:], each.propagate) for each in (logger, root, library)]
    records = []

    class Kept(logging.Handler):
        def emit(self, record):
            records.append(record.getMessage())

    handler = Kept()
    handler.setFormatter(TextFormatter(colour=False))
    logger.handlers, root.handlers = [handler], [handler]
    logger.setLevel("INFO")
    logger.propagate = False
    yield logger, records
    for each, level, handlers, propagate in before:
        for opened in each.handlers:
            if opened not in handlers:
                opened.close()
        each.handlers, each.propagate = handlers, propagate
        each.setLevel(level)


def log_of(path=None, **section):
    """The section ``log`` of an app whose devices may be found."""
    app = house(finds=Finds())
    app.load(Where.nowhere({"log": section | ({} if path is None else {"path": str(path)})}))
    return app.setup.sections.log


SMALL = 1000
"""Bytes of a file that is rotated soon: fewer than the settings allow."""


def about(device):
    return log_fields("something", device)


def test_one_device_may_be_louder_and_another_one_quieter(ours):
    logger, records = ours
    change_log(log_of(devices={"boiler": "DEBUG", "room-*": "ERROR"}))

    logger.debug("call of boiler", extra=about("boiler"))
    logger.debug("call of door", extra=about("door"))
    logger.warning("outage of room", extra=about("room-1"))
    logger.error("end of room", extra=about("room-1"))
    logger.debug("of no device")
    logger.info("also of no device")

    assert records == ["call of boiler", "end of room", "also of no device"]


def test_levels_hold_for_the_journal_of_systemd_too(ours, tmp_path):
    logger, records = ours
    logger.handlers = [JournalHandler(str(tmp_path / "nobody listens"), instead=logger.handlers[0])]
    change_log(log_of(devices={"boiler": "DEBUG", "room-*": "ERROR"}))

    logger.debug("call of boiler", extra=about("boiler"))
    logger.warning("outage of room", extra=about("room-1"))

    assert records == ["call of boiler"]


def test_a_library_may_be_louder_than_the_others(ours):
    _, records = ours
    change_log(log_of(levels={"somelibrary": "DEBUG"}))

    logging.getLogger("somelibrary.wire").debug("bytes")
    logging.getLogger("another").info("nothing of interest")

    assert records == ["bytes"]


def test_a_file_has_the_log_too_and_is_rotated(ours, tmp_path):
    logger, records = ours
    change_log(log_of(tmp_path / "logs" / "house.log", backups=2)._replace(max_bytes=SMALL))
    for number in range(60):
        logger.info("line %d of the log, which is longer than others", number, extra=about("boiler"))
    assert all(each.output.flush(60) for each in logger.handlers if isinstance(each, LogFile))

    files = sorted((tmp_path / "logs").iterdir())
    assert [each.name for each in files] == ["house.log", "house.log.1", "house.log.2"]
    assert all(each.stat().st_size <= SMALL for each in files)
    assert "line 59" in files[0].read_text()
    assert len(records) == 60


def test_a_file_that_cannot_be_opened_is_refused_with_what_to_write(ours, tmp_path):
    (tmp_path / "taken").write_text("")

    with pytest.raises(InvalidValue, match=r"log.path: .* cannot be opened: .*; write a path where the app may write"):
        change_log(log_of(tmp_path / "taken" / "house.log"))


@pytest.mark.parametrize("make", [os.mkfifo, os.mkdir, lambda path: os.symlink("/dev/null", path)])
def test_what_is_no_regular_file_is_refused_and_not_waited_for(make, ours, tmp_path):
    make(tmp_path / "house.log")

    with pytest.raises(InvalidValue, match=r"cannot be opened: .*it is no regular file; write a path"):
        change_log(log_of(tmp_path / "house.log"))


def test_a_file_that_cannot_be_written_any_more_is_told_once(ours, tmp_path, monkeypatch):
    logger, records = ours
    change_log(log_of(tmp_path / "house.log"))
    (log,) = [each for each in logger.handlers if isinstance(each, LogFile)]
    monkeypatch.setattr(log.file, "shouldRollover", lambda record: 1 / 0)
    for number in range(3):
        logger.info("line %d", number)
    assert log.output.flush(60)

    told = [each for each in records if "cannot be written" in each]
    assert told == [f"the log file {tmp_path}/house.log cannot be written: division by zero"]
    assert len(records) == 4


def test_a_file_whose_disk_does_not_answer_keeps_nobody_waiting(ours, tmp_path, monkeypatch):
    logger, records = ours
    change_log(log_of(tmp_path / "house.log"))
    (log,) = [each for each in logger.handlers if isinstance(each, LogFile)]
    answers = threading.Event()
    monkeypatch.setattr(log.file, "shouldRollover", lambda record: not answers.wait(60))
    text = "x" * 300
    for number in range(2 * MAX_WAITING_CHARS // len(text)):
        logger.info("line %d %s", number, text)
    shown = len(records)
    log.close()  # as at the end of the process, which does not wait for it
    assert not log.output.flush(0)

    answers.set()
    deadline = time.monotonic() + 60
    while not log.output.flush(0):
        assert time.monotonic() < deadline
        time.sleep(0.01)
    lines = (tmp_path / "house.log").read_text().splitlines()
    assert [line.split()[4] for line in lines] == [str(number) for number in range(len(lines))]
    assert shown == len(lines) + log.output.left_out


def test_a_file_that_cannot_be_rotated_goes_on_and_is_rotated_once_it_can_be(ours, tmp_path, monkeypatch):
    logger, records = ours
    change_log(log_of(tmp_path / "house.log")._replace(max_bytes=SMALL))
    (log,) = [each for each in logger.handlers if isinstance(each, LogFile)]
    calls = []

    def refuse(source, target):
        calls.append(source)
        raise PermissionError(13, "Permission denied")

    with monkeypatch.context() as refusing:
        refusing.setattr(os, "rename", refuse)
        for number in range(100):
            logger.info("line %d of the log", number)
        assert log.output.flush(60)
    assert len((tmp_path / "house.log").read_text().splitlines()) == 100
    assert len(calls) < 10
    assert len([each for each in records if "cannot be rotated, and grows: " in each]) == 1

    for number in range(100):
        logger.info("line %d of the log", number)
    assert log.output.flush(60)
    assert (tmp_path / "house.log").stat().st_size <= SMALL
    assert (tmp_path / "house.log.1").exists()


def test_a_program_with_logging_of_its_own_keeps_it(ours):
    logger, _ = ours
    logger.handlers[0].setFormatter(logging.Formatter())
    change_log(log_of(devices={"boiler": "DEBUG"}))

    assert logger.level == logging.INFO


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("[log.levels]\nbleak = 'debgu'", "did you mean 'debug'?"),
        ("[log.devices]\nboiler = 3", "the level of boiler is 3"),
        ("[log]\nlevels = 'debug'", "write one such as"),
        ("[log]\nbackups = 0", "write 1 to 100"),
        ("[log]\nmax_bytes = 5", "too few"),
        ("[log]\npaths = 'x'", "did you mean 'path'?"),
    ],
)
def test_a_section_that_makes_no_sense_is_refused(text, told, tmp_path):
    (tmp_path / "leadsman.toml").write_text(text)
    with pytest.raises(ConfigurationError) as caught:
        App("house").load(Where({}, tmp_path, secrets=tmp_path / "none"))

    assert told in str(caught.value)
    assert f"(from {tmp_path}/leadsman.toml line 2)" in str(caught.value)


def house(**options):
    app = App("house")

    @app.telemetry("room-1", interval=60, **options)
    async def room(context: Context) -> dict[str, float]:
        return {}

    return app


def test_levels_of_devices_that_there_are_not_are_refused_unless_they_may_be_found(tmp_path):
    (tmp_path / "leadsman.toml").write_text("[log.devices]\nromo-1 = 'debug'\n'x-*' = 'debug'\nroom-1 = 'debug'\n")
    where = Where({}, tmp_path, secrets=tmp_path / "none")
    with pytest.raises(ConfigurationError) as caught:
        house().load(where)

    one, other = str(caught.value).splitlines()
    assert one.startswith("log.devices: 'romo-1': there is no device of that name; did you mean 'room-1'? (from ")
    assert other.startswith("log.devices: 'x-*': no device matches; the app has room-1 (from ")
    house(finds=Finds()).load(where)


def test_the_section_of_the_file_is_what_is_used(tmp_path):
    text = "[log]\npath = '/var/log/house.log'\n[log.devices]\n'room-*' = 'warning'\n"
    (tmp_path / "leadsman.toml").write_text(text)
    app = house()
    app.load(Where({"LOG__BACKUPS": "5"}, tmp_path, secrets=tmp_path / "none"))

    assert app.setup.sections.log.devices == {"room-*": "WARNING"}
    assert (str(app.setup.sections.log.path), app.setup.sections.log.backups) == ("/var/log/house.log", 5)
