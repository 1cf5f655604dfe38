"""``leadsman alarms house:app``"""

from leadsman.extension import Command
from leadsman_alarm import limits


def run(app, options):
    """Print a line for each limit."""
    for name, limit in limits(app.plan({})).items():
        print(f"{name} {limit:g}")


ALARMS = Command(run)
