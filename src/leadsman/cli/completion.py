"""``leadsman completion``: scripts for bash, zsh and fish, generated from the parser itself."""

import argparse

SHELLS = ("bash", "zsh", "fish")


def script(shell: str, parser: argparse.ArgumentParser) -> str:
    """The completion script of a shell."""
    commands = commands_of(parser)
    return _fish(commands) if shell == "fish" else _bash(commands, zsh=shell == "zsh")


def commands_of(parser: argparse.ArgumentParser) -> dict[str, tuple[str, list[tuple[str, str]]]]:
    """The commands of a parser, with their help and their options."""
    found = {}
    for action in parser._subparsers._group_actions if parser._subparsers else ():  # noqa: SLF001  # argparse has no public way
        assert isinstance(action, argparse._SubParsersAction)  # noqa: SLF001  # as above
        helps = {choice.dest: choice.help or "" for choice in action._choices_actions}  # noqa: SLF001  # as above
        for name, sub in action.choices.items():
            options = [(each.option_strings[-1], each.help or "") for each in sub._actions if each.option_strings]  # noqa: SLF001  # as above
            found[name] = (helps.get(name, ""), options)
    return found


def _bash(commands: dict[str, tuple[str, list[tuple[str, str]]]], *, zsh: bool) -> str:
    cases = "\n".join(
        f"        {name}) words='{' '.join(option for option, _ in options)}' ;;"
        for name, (_, options) in commands.items()
    )
    head = "autoload -U +X bashcompinit && bashcompinit\n" if zsh else ""
    return f"""{head}_leadsman() {{
    local word=${{COMP_WORDS[COMP_CWORD]}} words='{" ".join(commands)}'
    [ "$COMP_CWORD" -gt 1 ] && case ${{COMP_WORDS[1]}} in
{cases}
        *) words='' ;;
    esac
    COMPREPLY=($(compgen -W "$words" -- "$word") $([ "$COMP_CWORD" -gt 1 ] && compgen -f -- "$word"))
}}
complete -o filenames -F _leadsman leadsman
"""


def _fish(commands: dict[str, tuple[str, list[tuple[str, str]]]]) -> str:
    lines = ["complete -c leadsman -f"]
    for name, (help_text, options) in commands.items():
        lines.append(f"complete -c leadsman -n __fish_use_subcommand -a {name} -d {_quoted(help_text)}")
        for option, words in options:
            flag = f"-l {option[2:]}" if option.startswith("--") else f"-s {option[1:]}"
            lines.append(f"complete -c leadsman -n '__fish_seen_subcommand_from {name}' {flag} -d {_quoted(words)}")
    return "\n".join(lines) + "\n"


def _quoted(text: str) -> str:
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"
