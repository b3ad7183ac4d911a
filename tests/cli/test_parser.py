from __future__ import annotations

import inspect

import pytest

import pipefix
from pipefix.cli.command import find, options
from pipefix.cli.nearest import nearest
from pipefix.cli.parser import parse
from pipefix.vocabulary.errors import BadUsage


def refusal(*argv: str) -> tuple[str, str]:
    with pytest.raises(BadUsage) as caught:
        parse(argv, find())
    return str(caught.value), caught.value.advice


@pytest.mark.parametrize(
    ("argv", "what", "advice"),
    [
        (["prob", "x.py"], "pipefix has no command 'prob'.", "Did you mean: pipefix probe?"),
        (
            ["qqq"],
            "pipefix has no command 'qqq'.",
            f"Its commands are {', '.join(find())}; start with: pipefix probe TARGET",
        ),
        (["probe", "x.py", "--budjet", "5"], "pipefix probe: there is no flag --budjet.", "Did you mean --budget?"),
        (["probe", "x.py", "--budjet=5"], "pipefix probe: there is no flag --budjet.", "Did you mean --budget?"),
        (["probe", "x.py", "--record"], "pipefix probe: there is no flag --record.", "Did you mean --recording-budget?"),
        (["probe", "x.py", "--zzzz"], "pipefix probe: there is no flag --zzzz.", "See what it takes with: pipefix probe --help"),
        (["show", "run.json", "--htm"], "pipefix show: there is no flag --htm.", "Did you mean --html?"),
        (["--versoin"], "pipefix: there is no flag --versoin.", "Did you mean --version?"),
        (["probe"], "pipefix probe: the following arguments are required: TARGET", "See what it takes with: pipefix probe --help"),
        (
            ["probe", "a.py", "b.py"],
            "pipefix probe: 'b.py' is one argument too many.",
            "See what it takes with: pipefix probe --help",
        ),
        (
            ["probe", "a.py", "--budget", "6o"],
            "pipefix probe: argument --budget: '6o' is not a number of seconds; write 60, 90s or 2m",
            "See what it takes with: pipefix probe --help",
        ),
        (
            ["probe", "a.py", "--quick", "--budget", "9"],
            "pipefix probe: argument --budget: not allowed with argument --quick",
            "See what it takes with: pipefix probe --help",
        ),
    ],
)
def test_mistakes_are_answered_with_what_was_meant(argv: list[str], what: str, advice: str) -> None:
    assert refusal(*argv) == (what, advice)


def test_help_is_what_people_type_as_well(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    said = []
    for words in (["probe", "--help"], ["help", "probe"], ["--help"], ["help"], []):
        with pytest.raises(SystemExit) as left:
            parse(words, find())
        assert left.value.code == 0
        said.append(capsys.readouterr().out)
    assert said[0] == said[1]
    assert said[2] == said[3] == said[4]
    assert refusal("help", "prob")[1] == "Did you mean: pipefix probe?"


@pytest.mark.parametrize("columns", [60, 90, 140])
@pytest.mark.parametrize("command", sorted(find()))
def test_help_is_no_wider_than_the_terminal(
    command: str, columns: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", str(columns))
    with pytest.raises(SystemExit):
        parse([command, "--help"], find())
    said = capsys.readouterr().out
    assert max(map(len, said.splitlines()[2:])) <= columns


def test_abbreviations_are_not_taken_for_flags() -> None:
    """They would change their meaning when a flag is added."""
    assert refusal("probe", "x.py", "--rec", "5MB")[0] == "pipefix probe: there is no flag --rec."


def test_the_nearest_word() -> None:
    assert nearest("--recor", ["--budget", "--recording-budget"]) == "--recording-budget"
    assert nearest("shwo", ["probe", "show"]) == "show"
    assert nearest("entirely-else", ["probe", "show"]) is None


@pytest.mark.parametrize(
    ("words", "verb", "own"),
    [
        ("probe x", "probe", ("budget", "recording_budget", "out", "fail_on")),
        ("fix x", "fix", ("undo",)),
        ("tune x", "tune", ()),
        ("convert x --to lmdb", "convert", ("dry_run",)),
        ("swap x --to kornia", "swap", ()),
    ],
)
def test_options_have_the_names_of_the_verbs_parameters(words: str, verb: str, own: tuple[str, ...]) -> None:
    given = options(parse(words.split(), find()), *own)
    assert set(given) <= set(inspect.signature(getattr(pipefix, verb)).parameters)
