"""What shells complete: bash really runs it; fish and zsh are held to the parser."""

from __future__ import annotations

import shutil
import subprocess

import pytest

from pipefix.cli.command import find
from pipefix.cli.main import main


def script(shell: str, capsys: pytest.CaptureFixture[str]) -> str:
    assert main(["completion", shell]) == 0
    return capsys.readouterr().out


@pytest.mark.skipif(shutil.which("bash") is None, reason="there is no bash here")
@pytest.mark.parametrize(
    ("words", "offered"),
    [
        (["pr"], ["probe"]),
        (["convert", "--to", ""], ["lmdb", "parquet"]),
        (["probe", "x.py", "--fail-on", "step"], ["step-bound"]),
        (["compare", "--max"], ["--max-regression"]),
        (["completion", ""], ["bash", "zsh", "fish"]),
        (["help", "sw"], ["swap"]),
        (["probe", "train"], []),  # files are the shell's own business
    ],
)
def test_bash(words: list[str], offered: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    typed = " ".join(f"'{word}'" for word in ["pipefix", *words])
    asked = f'COMP_WORDS=({typed}); COMP_CWORD={len(words)}; _pipefix; echo "${{COMPREPLY[@]}}"'
    done = subprocess.run(
        ["bash", "-c", f"{script('bash', capsys)}\n{asked}"], capture_output=True, text=True, check=True, timeout=60
    )
    assert done.stdout.split() == offered
    assert done.stderr == ""


def test_fish_knows_every_command_and_flag(capsys: pytest.CaptureFixture[str]) -> None:
    told = script("fish", capsys)
    assert all(f"__fish_seen_subcommand_from {command}'" in told for command in find())
    assert "-l max-regression" in told
    assert '-l to -x -a "lmdb parquet"' in told


def test_zsh_runs_what_bash_does(capsys: pytest.CaptureFixture[str]) -> None:
    assert script("zsh", capsys).endswith(script("bash", capsys))
