"""The README is true, and the check that says so can fail."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from pipefix.vocabulary import errors

ROOT = Path(__file__).resolve().parents[2]
CHECK = [sys.executable, str(ROOT / "scripts" / "check_readme.py")]


def faults(text: str, tmp_path: Path) -> str:
    page = tmp_path / "PAGE.md"
    page.write_text(text)
    done = subprocess.run([*CHECK, str(page)], capture_output=True, text=True, check=False)
    assert (done.returncode == 1) == bool(done.stderr)
    return done.stderr


def test_the_pages_are_true() -> None:
    done = subprocess.run(CHECK, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("<!-- output: pipefix show --help -->\n```text\nusage: something\n```\n", "the output of `pipefix show --help`"),
        ("```sh\npipefix prob x.py\n```\n", "there is no command `pipefix prob`"),
        ("```sh\npipefix probe x.py --budjet 3  # a comment\n```\n", "`pipefix probe` has no flag --budjet"),
        ("```sh\nscripts/absent\n```\n", "there is no scripts/absent"),
        ("[page](nowhere.md)\n", "the link to nowhere.md leads nowhere"),
    ],
)
def test_untruths_are_found(text: str, said: str, tmp_path: Path) -> None:
    assert said in faults(text, tmp_path)


def test_true_pages_pass(tmp_path: Path) -> None:
    assert faults("```sh\npipefix probe x.py --budget 3\n```\n", tmp_path) == ""


def test_write_brings_blocks_up_to_date(tmp_path: Path) -> None:
    page = tmp_path / "PAGE.md"
    page.write_text("before\n\n<!-- output: pipefix show --help -->\n```text\n```\n\nafter\n")
    subprocess.run([*CHECK, "--write", str(page)], check=True)
    text = page.read_text()
    assert "usage: pipefix show RUN" in text
    assert text.startswith("before\n")
    assert text.endswith("\nafter\n")
    subprocess.run([*CHECK, str(page)], check=True)


def test_every_exit_code_is_in_the_table() -> None:
    from pipefix.cli.main import BUG

    rows = re.findall(r"^\| (\d+) \|", (ROOT / "README.md").read_text(encoding="utf-8"), re.M)
    kinds = [kind for kind in vars(errors).values() if isinstance(kind, type) and issubclass(kind, errors.PipefixError)]
    assert {int(row) for row in rows} == {0, BUG, *(kind.exit_code for kind in kinds)}


def test_it_opens_with_the_two_commands() -> None:
    opening = (ROOT / "README.md").read_text(encoding="utf-8").split("\n## ")[0]
    assert opening.index("scripts/demo") < opening.index("scripts/test")
