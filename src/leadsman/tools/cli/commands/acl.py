"""``leadsman acl``: the access list of an app in the syntax of a broker."""

import argparse
import json
import os

from leadsman.core.mqtt.topics import DOCTOR
from leadsman.errors import InvalidValue
from leadsman.tools.access import AccessList, access_of
from leadsman.tools.cli.arguments import DISCOVERY, IDENTITY, TARGET, Subcommand, argument, only_with
from leadsman.tools.cli.target import load_app

FORMATS = ("mosquitto", "emqx")


def run(options: argparse.Namespace) -> None:
    """Print the access list of an app."""
    app = load_app(options)
    access, user, doctor = access_of(app.plan(os.environ)), app.brokers.primary.username, app.topics.of(DOCTOR, "#")
    if options.format == "emqx":
        print(emqx(app.name, user, app.client_id, access, doctor))
    else:
        print(mosquitto(app.name, user, access, doctor))


def mosquitto(name: str, user: str | None, access: AccessList, doctor: str) -> str:
    """The lines for the file that ``acl_file`` in ``mosquitto.conf`` names (mosquitto.conf(5)).

    Args:
        name: the name of the app.
        user: the user name that it connects with; None if it has none.
        access: its topic filters.
        doctor: the filter of the probes of ``leadsman doctor``.

    Raises:
        InvalidValue: the user name cannot be written in such a file.
    """
    if user is not None and (user != user.strip() or not user.isprintable()):
        raise InvalidValue(f"the user name {user!r} cannot be written in an access list of mosquitto; use another one")
    lines = [f"# {name}: lines for the file that acl_file names; then reload mosquitto with SIGHUP"]
    if user is None:
        lines.append("# no user name is configured: put these lines before the first line that begins with 'user'")
    else:
        lines.append(f"user {user}")
    both = [each for each in access.publish if each in access.subscribe]
    lines += [f"topic readwrite {each}" for each in both]
    lines += [f"topic write {each}" for each in access.publish if each not in both]
    lines += [f"topic read {each}" for each in access.subscribe if each not in both]
    probes = "# for the probes of leadsman doctor, if you use it with this user name:", f"# topic readwrite {doctor}"
    lines += only_with("doctor", *probes)
    return "\n".join(lines)


def emqx(name: str, user: str | None, client_id: str, access: AccessList, doctor: str) -> str:
    """The rules for the file ``etc/acl.conf`` of EMQX, which holds tuples of Erlang. The first rule that matches
    decides.

    Args:
        name: the name of the app.
        user: the user name that it connects with; None if it has none.
        client_id: its client id, which it is known by without a user name.
        access: its topic filters.
        doctor: the filter of the probes of ``leadsman doctor``.
    """
    who = f"{{clientid, {_quoted(client_id)}}}" if user is None else f"{{username, {_quoted(user)}}}"
    return "\n".join(
        [
            f"%% {name}: rules for etc/acl.conf, above its last rule; the last of these forbids everything else",
            f"{{allow, {who}, publish, {_list(access.publish)}}}.",
            f"{{allow, {who}, subscribe, {_list(access.subscribe)}}}.",
            *only_with(
                "doctor",
                "%% for the probes of leadsman doctor, if you use it with this user name:",
                f"%% {{allow, {who}, all, {_list((doctor,))}}}.",
            ),
            f'{{deny, {who}, all, ["#", "$SYS/#"]}}.',
        ]
    )


def _list(filters: tuple[str, ...]) -> str:
    if len(filters) == 1:
        return f"[{_quoted(filters[0])}]"
    return "[\n" + ",\n".join(f"  {_quoted(each)}" for each in filters) + "\n]"


def _quoted(text: str) -> str:
    """A string of Erlang, which escapes quotes and backslashes as JSON does."""
    return json.dumps(text, ensure_ascii=False)


COMMAND = Subcommand(
    run,
    "Prints what the app publishes and subscribes to, in the syntax of a broker, for the user name "
    "of its settings. The command connects to no broker.",
    (
        "leadsman acl house:app >> /etc/mosquitto/acl",
        "leadsman acl house:app --format emqx",
    ),
    (
        *TARGET,
        *IDENTITY,
        *DISCOVERY,
        argument("--format", "mosquitto or emqx (default: mosquitto)", choices=FORMATS, default=FORMATS[0]),
    ),
)
