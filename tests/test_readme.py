"""The README's code is run as it stands there."""

import json
import re
import tomllib
from pathlib import Path

import pytest

from leadsman import __version__
from leadsman.testing import Harness, SerialTwin

README = Path("README.md").read_text()
SHOWN = re.findall(r"^    (house/\S+) +(\S.*?)(?: {2,}(retained))?$", README, re.MULTILINE)
(BLOCK,) = re.findall(r"```python\n(.*?)```", README, re.DOTALL)


def app_of(answers):
    """The app of the README, with a meter that gives these answers, and then none."""
    code = BLOCK.replace('SerialPort("/dev/ttyUSB0", 9600)', "TWIN")
    assert "TWIN" in code
    names = {"TWIN": SerialTwin(lambda request: answers.pop(0) if answers else b"")}
    exec(compile(code, "house", "exec", dont_inherit=True), names)
    return names["app"]


def test_the_readme_has_no_more_than_seven_hundred_words():
    assert len(README.split()) <= 700


def test_the_example_fits_on_a_telephone_and_on_the_site():
    lines = [line for line in BLOCK.splitlines() if line]

    assert len(lines) <= 12
    assert max(map(len, lines)) <= 72


def test_what_the_readme_says_of_the_package_is_true():
    project = tomllib.loads(Path("pyproject.toml").read_text())["project"]
    pythons = [each.rpartition(" ")[2] for each in project["classifiers"] if "Python :: 3." in each]

    assert f"Version {__version__} · Python {', '.join(pythons)} · Linux · {project['license']} license" in README
    assert "alpha" in README
    assert "Development Status :: 3 - Alpha" in project["classifiers"]


def test_the_figures_of_the_readme_are_those_of_the_measurements():
    recovery, faults, benchmarks = (
        Path(page).read_text()
        for page in ("benchmarks/recovery.md", "docs/explanation/faults.md", "benchmarks/README.md")
    )
    long = recovery.partition("## Long outages")[2]
    plain, until = (
        re.search(rf"^\| {name} (?:\|[^|]*){{2}}\| ([\d.]+)", long, re.MULTILINE)[1]
        for name in ("no retry", "`retry=UNTIL_NEXT_POLL`")
    )
    taken, after = re.search(r"^\| 1 .*?taken (\d+); lost 0; first reading after ([\d.]+) s", faults, re.M).groups()
    away = re.search(r"^\| 13 .*?taken (\d+); lost 0", faults, re.MULTILINE)[1]
    bare, ours = re.search(r"^\| memory with 10 devices \| (\S+) MiB \| (\S+) MiB", benchmarks, re.MULTILINE).groups()
    loop, leadsman = re.search(r"reading received, 10 devices \| ([\d.]+) ms \| (\d+) ms", benchmarks).groups()
    packages, size = re.findall(r"^\| a base install: [^|]* \| – \| ([^|]+) \|", benchmarks, re.MULTILINE)

    text = " ".join(README.split())
    assert f"**It costs little:** {packages} packages, {size};" in text
    assert f"[back {float(until):.0f} s after a long outage]" in text
    assert f"on average, not {plain} s" in text
    assert f"[0 of {taken} lost]" in text
    assert f"and 0 of {away}; the next one came after {after} s" in text
    assert f"with ten devices {ours} MiB, and {leadsman} ms to start" in text
    assert f"aiomqtt [{bare} MiB, {float(loop):.0f} ms](benchmarks" in text


@pytest.mark.parametrize(("topic", "payload", "retained"), SHOWN)
def test_what_the_readme_shows_is_published(topic, payload, retained):
    with Harness(app_of([b"412.5\r\n"] * 4)) as harness:
        harness.run("10m")
        messages = [message for message in harness.broker.log if message.topic == topic]

    pattern = re.escape(payload).replace("…", ".*")
    assert [message for message in messages if re.search(pattern, message.payload.decode())]
    assert all(message.retain for message in messages) if retained else messages


def test_home_assistant_shows_the_value_of_the_readme():
    with Harness(app_of([b"412.5\r\n"]), settings={"discovery": {"convention": "homeassistant"}}) as harness:
        harness.run("5s")
        (told,) = (
            json.loads(message.payload)
            for topic, message in harness.broker.retained.items()
            if topic.endswith("/meter/config")
        )

    (watts,) = (each for each in told["cmps"].values() if each.get("name") == "Watts")
    assert (watts["p"], watts["unit_of_meas"]) == ("sensor", "W")


def test_an_answer_that_is_no_number_is_asked_for_again():
    with Harness(app_of([b"ERR\r\n", b"\xff\r\n", b"412.5\r\n"])) as harness:
        harness.run("20s")

        assert harness.states("meter") == [{"watts": 412.5}]
        assert harness.errors("meter") == []
