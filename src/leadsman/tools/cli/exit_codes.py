"""The exit codes of the command line, and what each of them means."""

FAILED, USAGE, CONFIG, INTERRUPTED = 1, 2, 78, 130
"""argparse uses 2 for usage too; 78 is EX_CONFIG of sysexits.h, 130 is 128 + SIGINT, as shells have it."""
SOME_HELD = SOME_SILENT = WITHOUT_NODE = 3
"""Of ``leadsman held``, ``leadsman why`` and ``leadsman cluster``. With the first, 1 means that the app did not answer,
which for the second is the reason of a silence."""
CHECK_FAILED = ASSERTION_FAILED = 4
"""Of ``leadsman doctor``, whose warnings exit with 0, and of ``leadsman simulate``, where 1 means that the app could
not be simulated."""

EXIT_CODES = {
    0: "success, or stopped on request",
    1: "failure; the message says why",
    2: "the command line is wrong, or several apps match it",
    3: "leadsman held: some devices are held; leadsman why: a device is silent and should not be; leadsman cluster: "
    "devices have no node",
    4: "leadsman doctor: a check failed; leadsman simulate: an assertion does not hold",
    69: 'a device with on_failure="stop" failed for good',
    70: "stopped on request, but something blocked the event loop until the deadline of two seconds",
    75: "no device gave a reading for as long as supervision.exit_when_stale says",
    78: "the configuration is wrong: settings, wherever they come from, a registration, or a missing library",
    79: "the event loop was blocked for as long as supervision.exit_when_hung says",
    130: "a second Ctrl-C or SIGTERM while an app stops, or a first Ctrl-C while a command waits",
}
"""All of them, and what each means."""

CODES = "exit codes:\n" + "\n".join(f"  {code:<3}  {meaning}" for code, meaning in EXIT_CODES.items())
"""For the end of a help."""
