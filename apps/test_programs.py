"""What all apps have in common as programs."""

import subprocess
import sys

import pytest

APPS = ["airthings2mqtt", "caldates2mqtt", "gas2mqtt", "p1meter2mqtt", "vito2mqtt"]


@pytest.mark.parametrize("name", APPS)
def test_an_app_runs_as_a_module_too(name):
    result = subprocess.run([sys.executable, "-m", name, "--version"], capture_output=True, text=True, check=True)

    assert result.stdout == f"{name} 0.1.0\n"


@pytest.mark.parametrize("name", APPS)
def test_an_app_that_is_not_rehearsed_loads_neither_its_twin_nor_the_testing_kit(name):
    code = f"import {name}, sys; print([each for each in sys.modules if each in ('leadsman.testing', '{name}.twin')])"
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)

    assert result.stdout == "[]\n"
