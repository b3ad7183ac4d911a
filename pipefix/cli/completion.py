"""Print what makes a shell complete pipefix's commands and flags.

Put it where your shell looks: pipefix completion bash >> ~/.bashrc, pipefix completion zsh >> ~/.zshrc, or for fish
pipefix completion fish > ~/.config/fish/completions/pipefix.fish
"""

from __future__ import annotations

from argparse import ArgumentParser, Namespace
from collections.abc import Callable, Mapping
from types import MappingProxyType

from pipefix.cli import console


def prepare_parser(parser: ArgumentParser) -> None:
    parser.usage = "pipefix completion bash|zsh|fish"
    parser.add_argument("shell", choices=tuple(SHELLS), help="the shell that it is for")


def run(arguments: Namespace) -> int:
    from pipefix.cli.command import find
    from pipefix.cli.parser import build

    _, parsers = build(find())
    console.results(SHELLS[arguments.shell](parsers).splitlines())
    return 0


def _flags(parser: ArgumentParser) -> list[str]:
    return [flag for action in parser._actions for flag in action.option_strings if flag.startswith("--")]


def _choices(parsers: Mapping[str, ArgumentParser]) -> list[tuple[str, str, list[str]]]:
    """(command, flag or "", what may follow it); for an argument without a flag that is one of a few words."""
    actions = [(command, action) for command, parser in parsers.items() for action in parser._actions if action.choices is not None]
    return [
        (command, flag, list(map(str, action.choices or ())))
        for command, action in actions
        for flag in ([option for option in action.option_strings if option.startswith("--")] or [""])
    ]


def _bash(parsers: Mapping[str, ArgumentParser]) -> str:
    following = _choices(parsers)
    flags = _cases({command: _flags(parser) for command, parser in parsers.items()})
    after = _cases({f"{command}:{flag}": words for command, flag, words in following if flag})
    bare = _cases({command: words for command, flag, words in following if not flag})
    return f"""_pipefix() {{
    local word="${{COMP_WORDS[COMP_CWORD]}}" before="${{COMP_WORDS[COMP_CWORD-1]}}" command="${{COMP_WORDS[1]}}" words=""
    if [ "$COMP_CWORD" -eq 1 ]; then
        words="{" ".join(parsers)} help version"
    elif case "$command:$before" in
{after}
        *) false ;; esac; then :
    elif [ "${{word#-}}" != "$word" ]; then case "$command" in
{flags}
        esac
    elif [ "$COMP_CWORD" -eq 2 ]; then case "$command" in
        help) words="{" ".join(parsers)}" ;;
{bare}
        esac
    fi
    COMPREPLY=($(compgen -W "$words" -- "$word"))
}}
complete -o default -F _pipefix pipefix"""


def _cases(words: Mapping[str, list[str]]) -> str:
    return "\n".join(f'        {before}) words="{" ".join(after)}" ;;' for before, after in words.items())


def _fish(parsers: Mapping[str, ArgumentParser]) -> str:
    lines = [f'complete -c pipefix -n __fish_use_subcommand -f -a "{" ".join(parsers)} help version"']
    following = {(command, flag): words for command, flag, words in _choices(parsers)}
    for command, parser in parsers.items():
        condition = f"complete -c pipefix -n '__fish_seen_subcommand_from {command}'"
        for flag in _flags(parser):
            words = following.get((command, flag))
            lines.append(f"{condition} -l {flag[2:]}" + (f' -x -a "{" ".join(words)}"' if words else ""))
        if (command, "") in following:
            lines.append(f'{condition} -f -a "{" ".join(following[command, ""])}"')
    return "\n".join(lines)


_RUNS_BASH = "autoload -U +X compinit && compinit\nautoload -U +X bashcompinit && bashcompinit\n"
SHELLS: Mapping[str, Callable[[Mapping[str, ArgumentParser]], str]] = MappingProxyType(
    {"bash": _bash, "zsh": lambda parsers: _RUNS_BASH + _bash(parsers), "fish": _fish}
)
