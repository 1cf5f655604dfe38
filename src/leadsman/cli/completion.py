"""``leadsman completion``: scripts for bash, zsh and fish, made from the table of the commands."""

from collections.abc import Sequence

from leadsman.cli.arguments import Command

SHELLS = ("bash", "zsh", "fish")


def script(shell: str, commands: Sequence[Command]) -> str:
    """The completion script of a shell."""
    return _fish(commands) if shell == "fish" else _bash(commands, zsh=shell == "zsh")


def _options(command: Command) -> list[tuple[str, str]]:
    options = [(each.flag, each.help) for each in command.arguments if each.is_option]
    return [*options, ("--help", "show the help of the command")]


def _bash(commands: Sequence[Command], *, zsh: bool) -> str:
    cases = "\n".join(
        f"        {command.name}) choices='{' '.join(flag for flag, _ in _options(command))}' ;;"
        for command in commands
    )
    head = "autoload -U +X bashcompinit && bashcompinit\n" if zsh else ""
    return f"""{head}_leadsman() {{
    local word=${{COMP_WORDS[COMP_CWORD]}} choices='{" ".join(command.name for command in commands)}'
    [ "$COMP_CWORD" -gt 1 ] && case ${{COMP_WORDS[1]}} in
{cases}
        *) choices='' ;;
    esac
    COMPREPLY=($(compgen -W "$choices" -- "$word") $([ "$COMP_CWORD" -gt 1 ] && compgen -f -- "$word"))
}}
complete -o filenames -F _leadsman leadsman
"""


def _fish(commands: Sequence[Command]) -> str:
    lines = ["complete -c leadsman -f"]
    for command in commands:
        lines.append(f"complete -c leadsman -n __fish_use_subcommand -a {command.name} -d {_quoted(command.summary)}")
        for flag, help_text in _options(command):
            seen = f"'__fish_seen_subcommand_from {command.name}'"
            lines.append(f"complete -c leadsman -n {seen} -l {flag[2:]} -d {_quoted(help_text)}")
    return "\n".join(lines) + "\n"


def _quoted(text: str) -> str:
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"
