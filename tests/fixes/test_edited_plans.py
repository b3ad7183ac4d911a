"""Plans that people edited, moved and broke between two runs: `--undo` puts back what was there, and keeps what they wrote."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pipefix.fixes.fix_log import undo
from pipefix.plan import backups, planfile
from pipefix.vocabulary.errors import PipefixError
from tests.fixes.benchtop import Bench, step

pytestmark = pytest.mark.usefixtures("fence")

CACHE = "pipefix-caches/source"


@pytest.fixture(scope="module")
def fixed(tmp_path_factory) -> Path:
    """A folder in which three steps hold: workers, a cache, and another setting."""
    bench = Bench(
        tmp_path_factory.mktemp("fixed"),
        [step("workers-2", 1.8)],
        [step("cache-source", 3.0)],
        [step("persistent-workers", 1.5)],
        [],
    )
    bench.run()
    return bench.folder


def edit(old: str, new: str) -> list[str]:
    return ["replace", old, new]


LINES = ["num_workers = 2", "persistent_workers = true", f'path = "{CACHE}"', 'store = "source"', 'format = "lmdb"', "cores = 2.0"]
EDITS = st.one_of(
    st.sampled_from(LINES).flatmap(
        lambda line: st.sampled_from(["", line.split(" =")[0] + " = 4", line.split(" =")[0] + ' = "x"', f"{line}  # mine"]).map(
            lambda new: edit(line, new)
        )
    ),
    st.sampled_from(["/elsewhere/source", f"./{CACHE}", f"../out/{CACHE}", "HERE", "a\\u0000b", "moved"]).map(
        lambda path: edit(f'path = "{CACHE}"', f'path = "{path}"')
    ),
    st.sampled_from(["[loader]", "[cache]", "[machine]", "[loader.evidence]", "[cache.evidence]"]).map(
        lambda table: ["drop table", table]
    ),
    st.sampled_from(["", "\n\n", "[loader", "num_workers = 1", "[augmentation]\nbackend = 'kornia'", "\x00", "[cache]"]).map(
        lambda text: ["append", text]
    ),
    st.just(["take the plan away"]),
    st.just(["only a comment"]),
    st.just(["take the cache away"]),
    st.just(["move the cache and link it"]),
    st.just(["move all caches and link them"]),
)


def apply(folder: Path, what: Sequence[str]) -> None:
    plan, cache = folder / planfile.NAME, folder / CACHE
    text = plan.read_text() if plan.exists() else None
    if what[0] == "take the cache away":
        shutil.rmtree(cache, ignore_errors=True)
    elif what[0].startswith("move"):
        moved = cache if "the cache" in what[0] else cache.parent
        if moved.exists() and not moved.is_symlink():
            shutil.move(moved, folder.parent / f"moved-{moved.name}")
            moved.symlink_to(folder.parent / f"moved-{moved.name}")
    elif text is None:
        return
    elif what[0] == "take the plan away":
        plan.unlink()
    elif what[0] == "replace":
        plan.write_text(text.replace(what[1], what[2].replace("HERE", str(cache))))
    elif what[0] == "drop table":
        start = text.find(f"\n{what[1]}\n")
        if start >= 0:
            end = text.find("\n[", start + 2)
            plan.write_text(text[:start] + (text[end:] if end >= 0 else ""))
    else:
        plan.write_text(text + (what[1] if what[0] == "append" else "# a remark of mine") + "\n")


def backed_up(folder: Path) -> list[int]:
    return backups.numbers(folder / planfile.NAME)


@settings(deadline=None)
@given(st.lists(st.lists(EDITS, max_size=2), min_size=3, max_size=3))
def test_undo_after_any_edit_puts_back_what_was_there_and_keeps_the_edited_plan(tmp_path_factory, fixed, rounds):
    folder = tmp_path_factory.getbasetemp() / "edited"
    for old in (folder, *folder.parent.glob("moved-*")):
        shutil.rmtree(old, ignore_errors=True)
    shutil.copytree(fixed / "out", folder)
    plan = folder / planfile.NAME
    for changes in rounds:
        for change in changes:
            apply(folder, change)
        numbers = backed_up(folder)
        theirs = plan.read_bytes() if plan.exists() else None
        if not numbers:
            continue
        older = backups.before(plan, numbers[-1]).read_bytes()
        taken = undo(folder)
        if taken.step:
            assert backed_up(folder) == numbers[:-1]
            assert (plan.read_bytes() if plan.exists() else b"") == older
            assert theirs in (None, older) or (folder / str(taken.kept_as)).read_bytes() == theirs
        else:  # a cache that the edited plan no longer named
            assert backed_up(folder) == numbers and (plan.read_bytes() if plan.exists() else None) == theirs
            assert taken.removed == [CACHE]


@settings(deadline=None)
@given(st.lists(EDITS, min_size=1, max_size=3))
def test_fix_after_any_edit_goes_on_or_says_what_is_in_its_way(tmp_path_factory, fixed, changes):
    folder = tmp_path_factory.getbasetemp() / "again"
    for old in (folder, *tmp_path_factory.getbasetemp().glob("again/moved-*")):
        shutil.rmtree(old, ignore_errors=True)
    shutil.copytree(fixed, folder)
    for change in changes:
        apply(folder / "out", change)
    try:
        Bench(folder, [step("thread-caps", 1.5)], []).run()
    except PipefixError:
        (folder / "out" / planfile.NAME).unlink(missing_ok=True)
        Bench(folder, []).run()
