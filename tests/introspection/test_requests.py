"""Requests for introspection: what is asked for, and what is said of a wrong one."""

import pytest

from leadsman.errors import PayloadError
from leadsman.introspection.requests import MOST_NEAR, SECTIONS, understood

FEW = ("kitchen", "attic", "cellar")
MANY = {f"device-{number:05}": None for number in range(10_000)}


def test_nothing_asks_for_every_device_and_all_sections_but_the_trace():
    request = understood("", FEW)

    assert (tuple(request.sections), request.names, request.chosen) == (SECTIONS, list(FEW), False)
    assert "trace" not in request.sections


def test_devices_are_described_in_the_order_of_the_app_and_once_each():
    request = understood({"devices": ["cellar", "kitchen", "cellar"], "after": 3, "since": 5.5}, FEW)

    assert request.names == ["kitchen", "cellar"]
    assert (request.chosen, request.after, request.since) == (True, 3, 5.5)


@pytest.mark.parametrize(
    ("request_", "known", "said"),
    [
        ({"devices": ["atic"]}, FEW, "did you mean 'attic'"),
        ({"devices": ["xyz"]}, FEW, "write one of attic, cellar, kitchen"),
        ({"devices": ["device-1234"]}, MANY, "did you mean 'device-"),
        ({"devices": ["kitchen"]}, MANY, "there are 10000, which the registry lists"),
        ({"sections": ["device"]}, MANY, "did you mean 'devices'"),
        ({"after": -1}, FEW, "'after' must be a number"),
        ({"since": True}, FEW, "'since' must be a number"),
    ],
)
def test_a_wrong_request_is_refused_with_what_may_have_been_meant(request_, known, said):
    with pytest.raises(PayloadError, match=said):
        understood(request_, known)


def test_a_wrong_name_is_compared_with_few_of_many_names(monkeypatch):
    compared = []

    def watched(word, names):
        compared.extend(names)

    monkeypatch.setattr("leadsman.introspection.requests.nearest", watched)
    with pytest.raises(PayloadError):
        understood({"devices": ["device-x"]}, MANY)

    assert len(compared) == MOST_NEAR


def test_a_wrong_name_of_any_length_is_cut():
    with pytest.raises(PayloadError) as refused:
        understood({"devices": ["x" * 60_000]}, FEW)
    with pytest.raises(PayloadError) as unknown:
        understood({"y" * 60_000: 1}, FEW)

    assert len(str(refused.value)) < 1000
    assert len(str(unknown.value)) < 1000
