from __future__ import annotations

import inspect

import pytest

import pipefix
from pipefix.cli.command import find, options
from pipefix.cli.parser import parse


def test_help_is_what_people_type_as_well(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    said = []
    for words in (["probe", "--help"], ["help", "probe"], ["--help"], ["help"], []):
        with pytest.raises(SystemExit) as left:
            parse(words, find())
        assert left.value.code == 0
        said.append(capsys.readouterr().out)
    assert said[0] == said[1]
    assert said[2] == said[3] == said[4]


@pytest.mark.parametrize("columns", [60, 140])
@pytest.mark.parametrize("command", sorted(find()))
def test_help_is_no_wider_than_the_terminal(
    command: str, columns: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", str(columns))
    with pytest.raises(SystemExit):
        parse([command, "--help"], find())
    said = capsys.readouterr().out
    assert max(map(len, said.splitlines()[2:])) <= columns


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


@pytest.mark.parametrize(
    ("typed", "module"),
    [
        ("fix --only cache-sample -m package.train -- --epochs 2", ["package.train", "--epochs", "2"]),
        ("probe -m package.train --quick", ["package.train"]),
        ("tune -m package.train -- -m other", ["package.train", "-m", "other"]),
    ],
)
def test_a_module_is_a_program_and_its_arguments_follow(typed: str, module: list[str]) -> None:
    arguments = parse(typed.split(), find())
    assert [arguments.target, *arguments.program] == ["-m", *module]
