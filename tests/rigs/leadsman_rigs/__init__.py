"""Rigs: the real parts that tests put around an app. Tests of leadsman, of its apps, and benchmarks share them.

`fixtures` is a plugin for pytest; the other modules are plain. A twin, which replaces hardware, is not a rig: it is in
`leadsman.testing`, for users too.
"""
