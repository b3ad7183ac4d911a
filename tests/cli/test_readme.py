"""The README is true, and the check that says so can fail."""

from __future__ import annotations

import ast
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


@pytest.mark.parametrize(
    ("text", "said"),
    [
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
        (
            "```text\nusage\n## Lost\n```sh\npipefix doctor\n```\n",
            "the block that begins in line 1 is not closed before",
        ),
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


UNCLOSED = """<!-- output: pipefix show --help -->
```text
usage: something

## A section

Its text.

```sh
pipefix doctor
```
"""


def test_write_drops_nothing_where_a_block_is_not_closed(tmp_path: Path) -> None:
    page = tmp_path / "PAGE.md"
    page.write_text(UNCLOSED)
    done = subprocess.run([*CHECK, "--write", str(page)], capture_output=True, text=True, check=False)
    assert page.read_text() == UNCLOSED
    assert done.returncode == 1
    assert "is not closed before that of line 9" in done.stderr


def test_a_lost_section_is_noticed(tmp_path: Path) -> None:
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    begin, end = text.index("## Install"), text.index("## Measured")
    (tmp_path / "README.md").write_text(text[:begin] + text[end:])
    done = subprocess.run([*CHECK, str(tmp_path / "README.md")], capture_output=True, text=True, check=False)
    assert "the section 'Install' is lost" in done.stderr


def test_no_docstring_cites_a_section_of_a_document() -> None:
    """Sections are numbered in texts that users do not have, and are numbered anew."""
    from tests.architecture import house

    cited = [
        f"{name}: {said.splitlines()[0]}"
        for name, module in house.modules().items()
        for node in ast.walk(module.tree)
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
