"""Checks that the README and the pages of docs/ are true: help blocks, shown output, commands, flags and links.

    <!-- output: pipefix show --help -->                      above a fenced block: it equals what the command prints
    a line that begins with `pipefix ` or `scripts/`          inside a block of shell: the command and its flags exist

Output is compared at a width of 100 columns, without colours. With --write the blocks are brought up to date instead.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import os
import re
import shlex
import sys
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

BLOCK = re.compile(r"(<!-- output: (?P<command>[^\n]+?) -->\n```(?:text)?\n)(?P<body>.*?)(```)", re.S)
FENCED = re.compile(r"^```(?P<kind>[a-z]*)\n(?P<body>.*?)^```", re.S | re.M)
FIRST_PART = " | sed '/^$/q'"
LINK = re.compile(r"\[[^\]]*\]\((?P<target>[^)\s#]+)(?:#[^)]*)?\)")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("pages", nargs="*", type=Path, help="default: README.md, CONTRIBUTING.md and docs/*.md")
    parser.add_argument("--write", action="store_true", help="bring the blocks up to date")
    arguments = parser.parse_args()
    pages = arguments.pages or [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md"))]
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
    stale = [
        f"{page}: the output of `{found['command']}` is not what is shown; run scripts/check_readme.py --write"
        for found in BLOCK.finditer(text)
        if printed(found["command"]) != found["body"]
    ]
    return stale + [f"{page}: {fault}" for fault in [*wrong_commands(text), *dead_links(page, text)]]


def printed(command: str) -> str:
    """What one of our commands prints, whole or up to its first blank line."""
    from pipefix.cli.main import main as pipefix

    words = shlex.split(command.removesuffix(FIRST_PART))
    if words[0] != "pipefix":
        raise SystemExit(f"only pipefix commands are run for the README, not {command!r}")
    out = io.TextIOWrapper(io.BytesIO(), encoding="utf-8")
    with contextlib.redirect_stdout(out):
        pipefix(words[1:])
    out.seek(0)
    text = "".join(f"{line.rstrip()}\n" for line in out.read().splitlines())
    return text.split("\n\n", 1)[0] + "\n" if command.endswith(FIRST_PART) else text


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
    if words[0].startswith("scripts/") and not (ROOT / words[0]).exists():
        yield f"there is no {words[0]}"
    if words[0] != "pipefix" or len(words) < 2 or words[1].startswith("-"):
        return
    parser = parsers.get(words[1])
    if parser is None:
        yield f"there is no command `pipefix {words[1]}`"
        return
    for word in words[2:]:
        flag = word.split("=")[0]
        if flag.startswith("-") and flag != "-" and flag not in parser.flags():
            yield f"`pipefix {words[1]}` has no flag {flag}"


def dead_links(page: Path, text: str) -> Iterator[str]:
    for found in LINK.finditer(text):
        target = found["target"]
        if "://" not in target and not (page.parent / target).exists():
            yield f"the link to {target} leads nowhere"


if __name__ == "__main__":
    sys.exit(main())
