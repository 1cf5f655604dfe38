"""Periodic jobs, which have no topics."""

import pytest

from leadsman import App
from leadsman.errors import InvalidType
from leadsman.testing import Scripted, fail

READING = {"t": 21.5}


def test_a_side_job_runs_and_has_no_topics(harness):
    done = []
    app = App("app")

    @app.periodic("cleanup", interval="1m")
    async def cleanup():
        done.append(1)

    running = harness(app)
    running.run("5m1s")

    assert len(done) == 6
    assert not any(each.topic.startswith("app/cleanup") for each in running.broker.log)
    assert running.status()["jobs"] == {"cleanup": {"status": "ok"}}
    assert running.status()["devices"] == {}


def test_a_side_job_that_fails_is_told_like_a_device(harness, caplog):
    app = App("app")
    app.add_periodic("cleanup", Scripted(fail(1), None), interval="1m", retry=0)
    running = harness(app)
    running.run("3m")

    assert "cleanup: failing" in caplog.text
    assert running.status()["jobs"]["cleanup"]["status"] == "ok"


def test_a_side_job_that_returns_something_is_told_so(harness):
    app = App("app")
    app.add_periodic("cleanup", Scripted(READING), interval="1m")
    running = harness(app)
    running.run(5)

    assert "periodic job" in running.status()["jobs"]["cleanup"]["last_error"]


def test_words_about_topics_are_not_for_side_jobs():
    with pytest.raises(InvalidType, match="'publish' is not an option"):
        App("app").add_periodic("cleanup", Scripted(None), interval=5, publish=None)
