"""Devices and services over HTTP."""

from leadsman.adapters.http.answer import HttpAnswer
from leadsman.adapters.http.client import HttpClient
from leadsman.adapters.http.verdict import HttpRefused, HttpUnavailable

__all__ = ["HttpAnswer", "HttpClient", "HttpRefused", "HttpUnavailable"]
