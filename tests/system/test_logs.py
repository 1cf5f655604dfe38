"""The log of a process, in each of its formats."""

import json

import pytest


@pytest.mark.parametrize(("kind", "begins"), [("json", '{"at": "'), ("journal", "<6>sys: connected"), ("text", "20")])
def test_logs_come_as_they_are_asked_for(mosquitto, listen, start_app, monkeypatch, kind, begins):
    monkeypatch.setenv("LOG_FORMAT", kind)
    app = start_app(
        '@app.telemetry("d", interval=0.2)\nasync def d():\n    raise OSError("a\\nb\\x1b[31m")\n', mosquitto.url
    )
    listen(mosquitto.port).wait_for("sys/d/error")
    app.end()

    lines = app.log.splitlines()
    assert any(line.startswith(begins) for line in lines)
    assert "\x1b" not in app.log
    if kind == "json":
        assert all(json.loads(line)["level"] in ("info", "warning") for line in lines)
