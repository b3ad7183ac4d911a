"""Plans that people edited, moved and broke between two runs: `--undo` puts back what it changed, or says what it leaves alone."""

from __future__ import annotations

import os
import shutil
from collections.abc import Sequence
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pipefix.caches import manifest as manifests
from pipefix.fixes import log as logs
from pipefix.fixes.undo import undo
from pipefix.plan import planfile
from pipefix.vocabulary.errors import BadUsage, PipefixError, UnreadableFile
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


def readable(folder: Path) -> planfile.PlanFile | None:
    """The plan; None where there is none. Raises where it cannot be read."""
    text = planfile.text_of(folder / planfile.NAME)
    return None if text is None else planfile.decode(text, origin="plan")


def effective(folder: Path) -> list[int]:
    with logs.Log(folder) as log:
        return [one.number for one in log.steps if one.status == "kept"]


@settings(deadline=None)
@given(st.lists(st.lists(EDITS, max_size=2), min_size=3, max_size=3))
def test_undo_after_any_edit_goes_on_or_says_what_is_in_its_way(tmp_path_factory, fixed, rounds):
    folder = tmp_path_factory.getbasetemp() / "edited"
    for old in (folder, *folder.parent.glob("moved-*")):
        shutil.rmtree(old, ignore_errors=True)
    shutil.copytree(fixed / "out", folder)
    for changes in rounds:
        for change in changes:
            apply(folder, change)
        before = effective(folder)
        try:
            readable(folder)
        except UnreadableFile:
            with pytest.raises(UnreadableFile):
                undo(folder)
            assert effective(folder) == before, "what could not be done is begun"
            (folder / planfile.NAME).unlink()
        theirs = readable(folder)
        found = undo(folder)
        assert effective(folder) == before[:-1]
        left = readable(folder)
        if theirs is not None and left is not None:
            mine = {"workers-2": "num_workers", "persistent-workers": "persistent_workers"}.get(found.id)
            for name in {"num_workers", "persistent_workers", "prefetch_factor"} - {mine}:
                assert getattr(left.loader, name, None) == getattr(theirs.loader, name, None)
        if left is not None and left.cache is not None and os.path.lexists(folder / left.cache.path):
            assert theirs is not None and left.cache.path == theirs.cache.path
        if "is left alone" in " ".join(found.left_alone):
            assert (folder / CACHE).is_symlink() or (folder / CACHE).parent.is_symlink()
        for moved in folder.parent.glob("moved-*/**/manifest.json"):
            manifests.read(moved.parent)
    with pytest.raises(BadUsage, match="nothing to take back"):
        undo(folder)


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


def test_a_cache_whose_path_was_edited_stays_in_the_plan_and_the_next_step_can_be_undone(tmp_path):
    bench = Bench(tmp_path, [step("workers-2", 1.8)], [step("cache-source", 3.0)], [])
    bench.run()
    plan = bench.out / planfile.NAME
    plan.write_text(plan.read_text().replace(f'"{CACHE}"', '"/big/source"'))
    found = undo(bench.out)
    assert found.id == "cache-source" and found.edited and found.removed == [CACHE]
    assert found.left_alone == ["[cache] of the plan was edited since, and stays as it is."]
    assert planfile.read(plan).cache.path == "/big/source"
    assert undo(bench.out).id == "workers-2"
    assert planfile.read(plan).cache.path == "/big/source" and planfile.read(plan).loader is None


@pytest.mark.parametrize("path", [f"./{CACHE}", f"../out/{CACHE}", "ABSOLUTE"])
def test_a_cache_that_the_plan_names_in_another_way_is_not_removed(tmp_path, path):
    bench = Bench(tmp_path, [step("cache-source", 3.0)], [])
    bench.run()
    plan = bench.out / planfile.NAME
    plan.write_text(plan.read_text().replace(f'"{CACHE}"', f'"{path.replace("ABSOLUTE", str(bench.out / CACHE))}"'))
    assert undo(bench.out).removed == [] and (bench.out / CACHE / "manifest.json").exists()
