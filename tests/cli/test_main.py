"""The command line as a whole."""

import pytest

from leadsman.cli.main import main


def test_an_argument_that_a_command_does_not_have_is_refused_with_the_usage_of_that_command(capsys):
    with pytest.raises(SystemExit) as ended:
        main(["inspect", "house:app", "--once"])

    err = capsys.readouterr().err
    assert ended.value.code == 2
    assert err.startswith("usage: leadsman inspect ")
    assert err.endswith("leadsman inspect: error: unrecognized arguments: --once\n")
