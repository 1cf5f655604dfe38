"""Tells other programs which devices an app has, and what they measure. A convention is a pure function from a
description of the app to retained messages; the announcer publishes these, and removes what no longer is."""
