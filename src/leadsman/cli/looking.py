"""The commands that show how devices are doing, in the table of the commands."""

from leadsman.cli import commands
from leadsman.cli.arguments import PREFIX, SETTINGS, TIMEOUT, Command, argument, device

WHY = Command(
    "why",
    commands.why,
    "say why a device is silent",
    "Walks the chain from the registration of a device to what the broker retains, and names the "
    "first link that does not pass a reading on, with the evidence and one thing to do. Without "
    "DEVICE, lists the silent devices. Without MODULE:APP and --prefix, asks the only app at the "
    "broker, or the only one there that has the device.",
    (
        "leadsman why boiler",
        "leadsman why boiler --prefix house",
        "leadsman why house:app boiler",
    ),
    "Exits with 3 if a device is silent that should not be, or if the broker cannot be reached; with "
    "1 if the app or the broker refuses to answer, else with 0.",
    (
        argument(
            "named",
            "the app, such as house:app, and the device (default: all that are silent)",
            nargs="*",
            metavar="[MODULE:APP] [DEVICE]",
            type=device,
        ),
        argument("--app", "the app, instead of --prefix", dest="target", metavar="MODULE:APP"),
        *SETTINGS,
        PREFIX,
        TIMEOUT,
        argument("--json", "print the verdict as JSON; without DEVICE, a list", action="store_true"),
    ),
)
WATCH = Command(
    "watch",
    commands.watch,
    "watch the devices of one app or of many",
    "Shows a board of the devices of all apps at the broker, or of the apps with the given prefixes: status, last "
    "value, next poll and error of each device. Keys: q quits, arrows choose a device, Enter explains its "
    "silence, s sorts, / filters, t hides devices without trouble. Without a terminal, it prints the board once.",
    (
        "leadsman watch",
        "leadsman watch house garden",
        "leadsman watch 'home/+' --mqtt mqtt://broker.lan",
        "leadsman watch --once --json | jq '.devices[] | select(.status != \"ok\")'",
    ),
    "",
    (
        argument(
            "pattern",
            "prefixes of apps, such as house, 'g*' or 'home/+' (default: all of one level)",
            nargs="*",
            metavar="PREFIX",
        ),
        *SETTINGS,
        TIMEOUT,
        argument("--once", "print the board once", action="store_true"),
        argument("--json", "print JSON: with --once one document, else one a line", action="store_true"),
    ),
)
