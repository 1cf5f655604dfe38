"""Looking at the file beside the app."""

import os

import pytest

from leadsman.core.spool.file import contents
from leadsman.core.spool.row import size
from leadsman.errors import SpoolUnavailable


def test_one_may_look_while_the_app_writes(spool, path, row):
    spool.write([row(1, taken_at=5.0), row(2, topic="b")], (), [(row(3), "no")])

    found = contents(path)

    assert found[:4] == (
        2,
        size(row(1).topic, 4) + size("b", 4),
        5.0,
        {row(1).topic: 1, "b": 1},
    )
    assert [each.why for each in found.dead] == ["no"]
    spool.write([row(4)], ())
    assert contents(path).rows == 3


@pytest.mark.parametrize("suffix", ["-wal", "-shm", "-journal"])
def test_a_pipe_beside_the_file_is_named_and_not_waited_for(open_spool, path, suffix):
    open_spool().close()
    os.mkfifo(f"{path}{suffix}")

    with pytest.raises(SpoolUnavailable, match=f"{path.name}{suffix} is not a regular file; remove it"):
        contents(path)


def test_there_is_nothing_to_look_at_before_an_app_made_it(path):
    with pytest.raises(SpoolUnavailable, match="there is no .*outbox.db"):
        contents(path)
    assert not path.parent.exists()
