"""Announces the devices of an app, and what they measure, to other programs. A convention is a pure function from a
description of the app to retained messages; the announcer publishes these, and removes what no longer is."""
