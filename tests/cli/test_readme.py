"""The README is true, and the check that says so can fail."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from pipefix.vocabulary import errors
from tests.doubles.scripts import script

ROOT = Path(__file__).resolve().parents[2]
Told = Callable[..., str]


@pytest.fixture
def told(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Told:
    """What `scripts/check_readme.py` says of a page; it returns 1 where it says anything."""
    check_readme = script("check_readme.py")
    monkeypatch.chdir(ROOT)
    monkeypatch.setenv("COLUMNS", "100")
    monkeypatch.setenv("NO_COLOR", "1")

    def told(page: Path, *options: str) -> str:
        monkeypatch.setattr(sys, "argv", ["check_readme.py", *options, str(page)])
        code = check_readme.main()
        said = capsys.readouterr().err
        assert code == bool(said)
        return said

    return told


UNTRUTHS = [
    ("<!-- output: pipefix show --help -->\n```text\nusage: something\n```\n", "the output of `pipefix show --help`"),
    ("```sh\npipefix prob x.py\n```\n", "there is no command `pipefix prob`"),
    ("```sh\npipefix probe x.py --budjet 3  # a comment\n```\n", "`pipefix probe` has no flag --budjet"),
    ("```sh\nscripts/absent\n```\n", "there is no scripts/absent"),
    ("[page](nowhere.md)\n", "the link to nowhere.md leads nowhere"),
    ("# Here\n[page](PAGE.md#there)\n", "the link to PAGE.md#there leads to no section"),
    ("# Here\n[page](#there)\n", "the link to #there leads to no section"),
    ("All figures are in `benchmarks/nowhere.md`.\n", "there is no page benchmarks/nowhere.md"),
    ("It is kept at the stage that `--stage` names.\n", "no command has the flag --stage"),
    ("```sh\npipefix convert x.py \\\n  --stage resized\n```\n", "`pipefix convert` has no flag --stage"),
]


def test_untruths_are_found(tmp_path: Path, told: Told) -> None:
    page = tmp_path / "PAGE.md"
    page.write_text("\n".join(text for text, _ in UNTRUTHS))
    said = told(page)
    assert [untruth for _, untruth in UNTRUTHS if untruth not in said] == []


def test_no_docstring_cites_a_section_of_a_document() -> None:
    """Sections are numbered in texts that users do not have, and are numbered anew."""
    from tests.architecture import house

    cited = [
        f"{name}: {said.splitlines()[0]}"
        for name, module in house.modules().items()
        for node in module.nodes
        if isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef)) and (said := ast.get_docstring(node))
        if re.search(r"\b[Ss]ection \d|§|\bdesign\.md", said)
    ]
    assert not cited


def test_every_exit_code_is_in_the_table() -> None:
    from pipefix.cli.main import BUG

    rows = re.findall(r"^\| (\d+) \|", (ROOT / "docs" / "commands.md").read_text(encoding="utf-8"), re.M)
    kinds = [kind for kind in vars(errors).values() if isinstance(kind, type) and issubclass(kind, errors.PipefixError)]
    assert {int(row) for row in rows} == {0, BUG, *(kind.exit_code for kind in kinds)}


def test_it_names_the_two_commands_of_a_checkout() -> None:
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    installing = text[text.index("## Install") : text.index("## Measured")]
    assert installing.index("scripts/demo ") < installing.index("scripts/test ")


def test_every_command_is_shown_whole_on_its_page() -> None:
    from pipefix.cli.command import find

    text = (ROOT / "docs" / "commands.md").read_text(encoding="utf-8")
    assert all(f"<!-- output: pipefix {name} --help -->" in text for name in find())


def test_the_picture_is_that_of_the_demos_card() -> None:
    done = subprocess.run([sys.executable, str(ROOT / "scripts" / "pictures"), "--check"], check=False)
    assert done.returncode == 0, "draw it again with scripts/pictures"
