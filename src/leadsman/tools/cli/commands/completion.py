"""``leadsman completion``: scripts for bash, zsh and fish, made from the table of the commands."""

import argparse
from collections.abc import Mapping

from leadsman.tools.cli.arguments import Subcommand, argument
from leadsman.tools.cli.commands import command, commands

SHELLS = ("bash", "zsh", "fish")


def run(options: argparse.Namespace) -> None:
    """Print the script of a shell."""
    found = {name: command(name) for name in commands()}
    print(_fish(found) if options.shell == "fish" else _bash(found, zsh=options.shell == "zsh"), end="")


def _options(command: Subcommand) -> list[tuple[str, str]]:
    options = [(each.flag, each.help) for each in command.arguments if each.flag.startswith("-")]
    return [*options, ("--help", "show the help of the command")]


def _bash(found: Mapping[str, Subcommand], *, zsh: bool) -> str:
    cases = "\n".join(
        f"        {name}) choices='{' '.join(flag for flag, _ in _options(each))}' ;;" for name, each in found.items()
    )
    head = "autoload -U +X bashcompinit && bashcompinit\n" if zsh else ""
    return f"""{head}_leadsman() {{
    local word=${{COMP_WORDS[COMP_CWORD]}} choices='{" ".join(found)}'
    [ "$COMP_CWORD" -gt 1 ] && case ${{COMP_WORDS[1]}} in
{cases}
        *) choices='' ;;
    esac
    COMPREPLY=($(compgen -W "$choices" -- "$word") $([ "$COMP_CWORD" -gt 1 ] && compgen -f -- "$word"))
}}
complete -o filenames -F _leadsman leadsman
"""


def _fish(found: Mapping[str, Subcommand]) -> str:
    lines = ["complete -c leadsman -f"]
    for name, each in found.items():
        summary = _quoted(commands()[name].summary)
        lines.append(f"complete -c leadsman -n __fish_use_subcommand -a {name} -d {summary}")
        for flag, help_text in _options(each):
            seen = f"'__fish_seen_subcommand_from {name}'"
            lines.append(f"complete -c leadsman -n {seen} -l {flag[2:]} -d {_quoted(help_text)}")
    return "\n".join(lines) + "\n"


def _quoted(text: str) -> str:
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"


COMMAND = Subcommand(
    run,
    "Prints a script for bash, zsh or fish.",
    (
        "source <(leadsman completion bash)",
        "leadsman completion fish > ~/.config/fish/completions/leadsman.fish",
    ),
    (argument("shell", "bash, zsh or fish", choices=SHELLS),),
)
