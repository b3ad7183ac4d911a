"""Checks that the README and the pages of docs/ are true and whole: help blocks, shown output, commands, flags, links, sections.

    <!-- output: pipefix show --help -->                      above a fenced block: it equals what the command prints
    a line that begins with `pipefix ` or `scripts/`          inside a block of shell: the command and its flags exist

Output is compared at a width of 100 columns, without colours. With --write the blocks are brought up to date instead.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import itertools
import os
import re
import shlex
import sys
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

BLOCK = re.compile(r"^(<!-- output: (?P<command>[^\n]+?) -->\n```(?:text)?\n)(?P<body>(?:(?!```)[^\n]*\n)*)(```\n)", re.M)
"""A block ends at the first fence: one that was never closed is none, and nothing after it is taken for its body."""
FENCED = re.compile(r"^```(?P<kind>[a-z]*)\n(?P<body>(?:(?!```)[^\n]*\n)*)```$", re.M)
FENCE = re.compile(r"^```(?P<kind>[^\n]*)$", re.M)
HEADING = re.compile(r"^#+ (?P<title>[^\n]+)$", re.M)
LINK = re.compile(r"\[[^\]]*\]\((?P<page>[^)\s#]*)(?:#(?P<anchor>[^)]*))?\)")
CODE = re.compile(r"`(?P<code>[^`\n]+)`")
FLAG = re.compile(r"(?<![\w-])--[a-z][a-z-]*")
PAGE = re.compile(r"[\w./-]+\.md\b")
OTHERS = ("README.md", "CONTRIBUTING.md", "AGENTS.md", "skills/pipefix/SKILL.md")
SECTIONS = {
    "README.md": ("Which part is slow, and what is a fix worth?", "Install", "Measured", "More"),
    "commands.md": ("Exit codes",),
}  # fmt: skip
"""What a page must have: a section that is lost, or renamed, has to be lost here as well."""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("pages", nargs="*", type=Path, help="default: README.md and its like, and docs/*.md")
    parser.add_argument("--write", action="store_true", help="bring the blocks up to date")
    arguments = parser.parse_args()
    pages = arguments.pages or [*(ROOT / name for name in OTHERS), *sorted((ROOT / "docs").glob("*.md"))]
    os.chdir(ROOT)
    os.environ.update(COLUMNS="100", NO_COLOR="1")
    faults = [fault for page in pages for fault in check(page, write=arguments.write)]
    for fault in faults:
        print(fault, file=sys.stderr)
    return 1 if faults else 0


def check(page: Path, *, write: bool = False) -> list[str]:
    """What is untrue on a page."""
    text = page.read_text(encoding="utf-8")
    if write:
        text = BLOCK.sub(lambda found: found[1] + printed(found["command"]) + found[4], text)
        page.write_text(text, encoding="utf-8")
    faults = [*unclosed(text), *lost_sections(page, text)]
    faults += [*wrong_commands(text), *unknown_flags(text), *dead_links(page, text), *absent_pages(page, text)]
    stale = [
        f"{page}: the output of `{found['command']}` is not what is shown; run scripts/check_readme.py --write"
        for found in BLOCK.finditer(text)
        if printed(found["command"]) != found["body"]
    ]
    return stale + [f"{page}: {fault}" for fault in faults]


def unclosed(text: str) -> Iterator[str]:
    """Fenced blocks that go on where the next one begins, or to the end of the page."""
    opened = 0
    for found in FENCE.finditer(text):
        line = text.count("\n", 0, found.start()) + 1
        if opened and found["kind"]:
            yield f"the block that begins in line {opened} is not closed before that of line {line}"
        opened = line if found["kind"] or not opened else 0
    if opened:
        yield f"the block that begins in line {opened} is not closed"


def lost_sections(page: Path, text: str) -> Iterator[str]:
    titles = {found["title"] for found in HEADING.finditer(FENCED.sub("", text))}
    for wanted in SECTIONS.get(page.name, ()):
        if wanted not in titles:
            yield f"the section {wanted!r} is lost"


def printed(command: str) -> str:
    """What one of our commands prints."""
    from pipefix.cli.main import main as pipefix

    words = shlex.split(command)
    if words[0] != "pipefix":
        raise SystemExit(f"only pipefix commands are run for the README, not {command!r}")
    out = io.TextIOWrapper(io.BytesIO(), encoding="utf-8")
    with contextlib.redirect_stdout(out):
        pipefix(words[1:])
    out.seek(0)
    return "".join(f"{line.rstrip()}\n" for line in out.read().splitlines())


def wrong_commands(text: str) -> Iterator[str]:
    """Commands and flags in fenced blocks that do not exist."""
    from pipefix.cli.command import find
    from pipefix.cli.parser import build

    _, parsers = build(find())
    shown = {found["body"] for found in BLOCK.finditer(text)}
    for found in FENCED.finditer(text):
        if found["body"] in shown or found["kind"] not in ("console", "sh", "bash", "yaml"):
            continue
        for line in found["body"].replace("\\\n", " ").splitlines():
            yield from wrong_words(line.split(" #")[0].strip().removeprefix("$ ").removeprefix("- run: "), parsers)


def wrong_words(line: str, parsers: dict) -> Iterator[str]:  # type: ignore[type-arg]
    words = line.split()
    if not words:
        return
    if "--" in words:
        words = words[: words.index("--")]  # what follows is a program's
    if words[0].startswith("scripts/") and not (ROOT / words[0]).exists():
        yield f"there is no {words[0]}"
    if words[0] != "pipefix" or len(words) < 2 or words[1].startswith("-"):
        return
    parser = parsers.get(words[1])
    if parser is None:
        yield f"there is no command `pipefix {words[1]}`"
        return
    for word in words[2 : len(words) - _of_a_program(parser, words[2:])]:
        flag = word.split("=")[0]
        if flag.startswith("-") and flag != "-" and flag not in parser.flags():
            yield f"`pipefix {words[1]}` has no flag {flag}"


def _of_a_program(parser: argparse.ArgumentParser, words: list[str]) -> int:
    """How many words belong to a program: what follows ``--``, or the first that is no flag and all after it."""
    if "--" in words:
        return len(words) - words.index("--")
    takes_one = any(action.nargs == argparse.REMAINDER for action in parser._actions)
    return sum(1 for _ in itertools.dropwhile(lambda word: word.startswith("-"), words)) if takes_one else 0


def unknown_flags(text: str) -> Iterator[str]:
    """Flags named in sentences, which one of our commands or scripts must have."""
    from pipefix.cli.command import find
    from pipefix.cli.parser import build

    top, parsers = build(find())
    known = {flag for parser in (top, *parsers.values()) for flag in parser.flags()}
    for script in (*(ROOT / "scripts").iterdir(), *(ROOT / "benchmarks" / "harness").glob("*.py")):
        if script.is_file():
            known.update(re.findall(r"\"(--[a-z][a-z-]*)\"", script.read_text(encoding="utf-8", errors="replace")))
    for found in CODE.finditer(FENCED.sub("", text)):
        if not found["code"].startswith(("pip ", "pipx ", "uvx ", "pytest", "scripts/", "python ")):
            yield from (f"no command has the flag {flag}" for flag in FLAG.findall(found["code"]) if flag not in known)


def dead_links(page: Path, text: str) -> Iterator[str]:
    for found in LINK.finditer(FENCED.sub("", text)):
        if "://" in found["page"]:
            continue
        target = page.parent / found["page"] if found["page"] else page
        if not target.exists():
            yield f"the link to {found['page']} leads nowhere"
        elif found["anchor"] and target.suffix == ".md" and found["anchor"] not in anchors(target.read_text(encoding="utf-8")):
            yield f"the link to {found['page']}#{found['anchor']} leads to no section of it"


def anchors(text: str) -> set[str]:
    """Of a page's headings, as the web sites that show them name them."""
    titles = (found["title"].lower() for found in HEADING.finditer(FENCED.sub("", text)))
    return {re.sub(r"[^\w -]", "", title).replace(" ", "-") for title in titles}


def absent_pages(page: Path, text: str) -> Iterator[str]:
    """Pages that are named without a link."""
    for name in PAGE.findall(FENCED.sub("", text)):
        if not (page.parent / name).exists() and not (ROOT / name).exists():
            yield f"there is no page {name}"


if __name__ == "__main__":
    sys.exit(main())
