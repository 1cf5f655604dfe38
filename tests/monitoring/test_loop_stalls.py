import sys

from leadsman.monitoring import loop_stalls as stalls
from leadsman.monitoring.loop_stalls import _blocking


def called_by_leadsman(function):
    """Call it from a frame that looks like one of ours."""
    code = compile("def call(function):\n    return function()\n", stalls.__file__, "exec")
    names = {}
    exec(code, names)
    return names["call"](function)


def test_the_handler_is_named_not_the_library_that_it_called():
    def handler():
        return library()

    def library():
        return _blocking(sys._getframe())

    assert "handler (test_loop_stalls.py:" in called_by_leadsman(handler)


def test_without_a_handler_the_innermost_function_is_named():
    assert _blocking(sys._getframe()).startswith("test_without_a_handler")
