"""A comparison for other programs: Markdown for a pull request, GitHub's annotations, JUnit for a CI's list of tests."""

from __future__ import annotations

import html
from collections.abc import Callable, Mapping
from types import MappingProxyType

from pipefix.report.comparable import changed_settings
from pipefix.report.compare import HEADS, Comparison, row
from pipefix.vocabulary.printable import printable


def markdown(comparison: Comparison) -> list[str]:
    """A heading, the gate's sentence, and tables that GitHub and GitLab draw."""
    lines = ["### pipefix compare", "", f"**{_cell(comparison.sentence)}**"]
    if comparison.gate is not None:
        lines += ["", _cell(comparison.gate)]
    lines += _table(HEADS, [row(change) for change in comparison.stages])
    lines += _table(["figure", "before", "after"], [[change.what, change.before, change.after] for change in comparison.beside])
    for title, notes in (
        ("Changed settings", changed_settings(comparison.before, comparison.after)),
        ("Doubts", comparison.doubts),
    ):
        if notes:
            lines += ["", f"{title}:", "", *(f"- {_cell(note)}" for note in notes)]
    return lines


def _table(heads: list[str], rows: list[list[str]]) -> list[str]:
    if not rows:
        return []
    head, *body = (f"| {' | '.join(map(_cell, cells))} |" for cells in (heads, *rows))
    return ["", head, "| --- |" + " ---: |" * (len(heads) - 1), *body]


def _cell(words: str) -> str:
    """Names come from files of others: they neither end a cell nor begin markup."""
    for sign in ("\\", "|", "`", "*", "_", "[", "]", "<", ">", "~"):
        words = words.replace(sign, f"\\{sign}")
    return printable(words)


def github(comparison: Comparison) -> list[str]:
    """Workflow commands: an error where the gate closes, a warning where it could not judge, a notice otherwise."""
    level, message = "notice", comparison.gate or comparison.sentence
    if comparison.gate is not None:
        level = "error" if comparison.regressed else "notice" if message.startswith("No regression:") else "warning"
    lines = [f"::{level} title=pipefix compare::{_escaped(message)}"]
    return lines + [f"::warning title=pipefix compare::{_escaped(doubt)}" for doubt in comparison.doubts]


def _escaped(words: str) -> str:
    return printable(words).replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def junit(comparison: Comparison) -> list[str]:
    """One test case, which fails as the gate does."""
    failed = comparison.regressed
    target, message = html.escape(printable(comparison.after.target or "pipeline")), html.escape(printable(comparison.sentence))
    body = [f"<system-out>{html.escape(printable(line))}</system-out>" for line in ("; ".join(comparison.doubts),) if line]
    if failed:
        body.insert(0, f'<failure message="{html.escape(printable(comparison.gate or ""))}">{message}</failure>')
    return [
        '<?xml version="1.0" encoding="UTF-8"?>',
        f'<testsuites><testsuite name="pipefix compare" tests="1" failures="{int(failed)}" errors="0" skipped="0">',
        f'<testcase classname="pipefix" name="throughput of {target}">{"".join(body)}</testcase>',
        "</testsuite></testsuites>",
    ]


FORMATS: Mapping[str, Callable[[Comparison], list[str]]] = MappingProxyType(
    {"markdown": markdown, "github": github, "junit": junit}
)
