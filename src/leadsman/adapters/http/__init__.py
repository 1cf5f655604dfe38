"""Devices and services over HTTP."""

from leadsman.adapters.http.answer import HttpAnswer, HttpRefused, HttpUnavailable
from leadsman.adapters.http.client import HttpClient

__all__ = ["HttpAnswer", "HttpClient", "HttpRefused", "HttpUnavailable"]
