"""The OpenAPI document: it is up to date, and it describes what is served."""

import json
import subprocess
import sys
from importlib.resources import files

import pytest

from leadsman.extensions.http.routes import Application


@pytest.fixture(scope="module")
def text():
    """The document that is served."""
    return files("leadsman.extensions.http").joinpath("openapi.json").read_text("utf-8")


def test_the_file_is_what_the_types_make():
    made = subprocess.run(
        [sys.executable, "scripts/openapi.py", "--check"], capture_output=True, check=False, text=True
    )

    assert (made.returncode, made.stderr) == (0, "")


def test_it_describes_every_route_and_no_other(text):
    application = Application(None, None, None, None, {"/": None, "/openapi.json": None}, None)
    served = {
        (route.path, method.lower()) for route in application.routes for method in route.methods if method != "HEAD"
    }
    described = {(path, method) for path, methods in json.loads(text)["paths"].items() for method in methods}

    assert described == served


def test_it_says_what_the_fields_of_an_answer_mean(text):
    schemas = json.loads(text)["components"]["schemas"]

    assert schemas["AdapterSection"]["properties"]["open"]["description"] == "Whether it is open."
    assert schemas["OutboxSection"]["properties"]["bytes"]["description"] == "Their size."


def test_it_is_served_as_it_is_written(run, text):
    response = run(lambda house: house.get("/openapi.json"))

    assert response.json() == json.loads(text)


def test_every_reference_leads_somewhere(text):
    document = json.loads(text)
    names = {part.split('"')[0] for part in text.split("#/components/schemas/")[1:]}

    assert names <= set(document["components"]["schemas"])
    assert len(names) > 10
