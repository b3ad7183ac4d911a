"""Log, plans and backups may come from anybody, with a repository: whatever they say, nothing of the user's is lost."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pipefix.fixes import fix_log as logs
from pipefix.fixes.fix_log import undo
from pipefix.plan import planfile
from pipefix.vocabulary.errors import BadUsage, PipefixError
from tests.fixes.benchtop import Bench, step

pytestmark = pytest.mark.usefixtures("fence")

CACHES = "pipefix-caches"


def tree(*folders: Path) -> dict[str, object]:
    """Everything below the folders, links not followed: where they lead, and what files hold."""
    seen: dict[str, object] = {}
    for folder in folders:
        for root, names, files in os.walk(folder):
            for path in (Path(root, name) for name in (*names, *files)):
                seen[str(path)] = os.readlink(path) if path.is_symlink() else path.is_dir() or path.read_bytes()
    return seen


@pytest.fixture(scope="module")
def a_cache(tmp_path_factory) -> Path:
    """A cache that `fix` made."""
    bench = Bench(tmp_path_factory.mktemp("made"), [step("cache-source", 3.0)], [])
    bench.run()
    return bench.out / CACHES / "source"


class Yard:
    """A user's folders around an output folder, with everything that a log might be after."""

    def __init__(self, folder: Path, a_cache: Path) -> None:
        shutil.rmtree(folder, ignore_errors=True)
        self.folder, self.out = folder, folder / "project" / "out"
        self.out.mkdir(parents=True)
        self.victim = folder / "victim"
        for place in (self.victim, self.out / "data", self.out / CACHES / "notes", self.out / CACHES / "mixed"):
            for name in ("parts/00000.mdb", "index/00000.idx", "manifest.json", "thesis.txt"):
                path = place / name
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_text("mine")
        shutil.copytree(a_cache, folder / "moved")  # a real cache, moved away by the user, who left a link
        (self.out / CACHES / "moved").symlink_to(folder / "moved")
        (self.out / CACHES / "away").symlink_to(self.victim)
        shutil.copytree(a_cache, self.out / CACHES / "hollow")
        shutil.rmtree(self.out / CACHES / "hollow" / "parts")
        (self.out / CACHES / "hollow" / "parts").symlink_to(self.victim / "parts")

    def write_log(self, *lines: dict[str, object] | str) -> None:
        text = "".join((line if isinstance(line, str) else json.dumps(line)) + "\n" for line in lines)
        (self.out / logs.LOG).write_text(text)

    def theirs(self) -> dict[str, object]:
        """But for the log, and plans, which may change names."""
        return {
            name: what for name, what in tree(self.folder).items()
            if not Path(name).name.startswith(("pipefix.log", "pipefix.plan"))
        }  # fmt: skip

    def fix(self) -> object:
        """A whole run that finds nothing to do, and the way back."""
        bench = Bench(self.folder / "project", [])
        try:
            return bench.run()
        finally:
            shutil.rmtree(self.folder / "project" / "data")


PLACES = (
    "..",
    ".",
    "",
    "~",
    "victim",
    "data",
    CACHES,
    "notes",
    "mixed",
    "moved",
    "away",
    "hollow",
    "parts",
    "index",
    "\0",
    "out",
    "*",
)


@st.composite
def hostile_paths(draw) -> str:
    path = "/".join(draw(st.lists(st.sampled_from(PLACES), min_size=1, max_size=6)))
    return draw(st.sampled_from(("", "YARD/"))) + path


NUMBERS = st.sampled_from(["", ".before-1", ".before-9", ".undone-9", ".mine"])


@settings(deadline=None)
@given(hostile_paths(), st.sampled_from(["begun", "dropped", "kept", "swept"]), st.dictionaries(NUMBERS, hostile_paths()))
def test_no_path_in_a_file_removes_what_pipefix_did_not_make(tmp_path_factory, a_cache, makes, event, plans):
    # Deeper than a path has "..", so that a fault which this test is to find reaches no folder of the machine.
    yard = Yard(tmp_path_factory.getbasetemp() / "a/b/c/d/e/f/hostile", a_cache)
    begun = {"event": "begun", "step": 1, "id": "cache-source", "makes": makes.replace("YARD", str(yard.folder))}
    yard.write_log(begun, {**begun, "event": event})
    for number, path in plans.items():
        cache = planfile.CacheChange(path=path.replace("YARD", str(yard.folder)) or ".", store="source")
        (yard.out / f"pipefix.plan{number}.toml").write_text(planfile.encode(planfile.PlanFile(cache=cache)))
    before = yard.theirs()
    for _ in range(2):
        with contextlib.suppress(PipefixError):
            undo(yard.out)
        assert yard.theirs() == before
    with contextlib.suppress(PipefixError):
        yard.fix()
    assert yard.theirs() == before


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("source", "is a symbolic link"),  # the cache was moved to a larger disk
        ("decoded", "parts is a symbolic link"),
        ("sample", "it holds what pipefix did not make, such as 'thesis.txt'"),
    ],
)
def test_what_is_left_alone_is_told(tmp_path, a_cache, name, why):
    caches, moved = tmp_path / "out" / CACHES, tmp_path / "large-disk"
    shutil.copytree(a_cache, moved)
    caches.mkdir(parents=True)
    if name == "source":
        (caches / name).symlink_to(moved)
    else:
        shutil.copytree(a_cache, caches / name)
    if name == "decoded":
        shutil.rmtree(caches / name / "parts")
        (caches / name / "parts").symlink_to(moved / "parts")
    elif name == "sample":
        (caches / name / "thesis.txt").write_text("mine")
    before = tree(moved)
    for left in (Bench(tmp_path, []).run().left_alone, undo(tmp_path / "out").left_alone if name != "sample" else None):
        assert left is None or (len(left) == 1 and left[0].startswith(f"{CACHES}/{name} is left alone") and why in left[0])
    assert tree(moved) == before


def test_folders_of_the_users_own_in_our_folder_stay(tmp_path, a_cache):
    """Whatever they are called: of another name, or without our mark in them."""
    for name in ("theirs", "mine"):
        shutil.copytree(a_cache, tmp_path / "out" / CACHES / name)
    (tmp_path / "out" / CACHES / "source" / "parts").mkdir(parents=True)
    (tmp_path / "out" / CACHES / "source" / "parts" / "00000.mdb").write_text("mine")
    before = tree(tmp_path / "out" / CACHES)
    assert Bench(tmp_path, []).run().left_alone == []
    with pytest.raises(BadUsage, match="nothing to take back"):
        undo(tmp_path / "out")
    assert tree(tmp_path / "out" / CACHES) == before


def test_caches_behind_a_link_that_replaces_their_folder_stay(tmp_path, a_cache):
    """The cache was moved to a larger disk and linked from where it was: undo takes the plan back and leaves the cache."""
    bench = Bench(tmp_path, [step("cache-source", 3.0)], [])
    bench.run()
    shutil.move(bench.out / CACHES, tmp_path / "large-disk")
    (bench.out / CACHES).symlink_to(tmp_path / "large-disk")
    before = tree(tmp_path / "large-disk")
    found = undo(bench.out)
    assert found.plan is None and found.removed == []
    assert found.left_alone == [f"pipefix-caches/source is left alone: {CACHES} is a symbolic link."]
    assert tree(tmp_path / "large-disk") == before


def test_of_a_cache_of_ours_only_what_it_lists_is_removed(tmp_path):
    bench = Bench(tmp_path, [step("cache-source", 3.0)], [])
    bench.run()
    folder = bench.out / CACHES / "source"
    (folder / "notes.txt").write_text("mine")
    (folder / "parts" / "99999.mdb").write_text("mine")
    found = undo(bench.out)
    assert [name for name, what in tree(folder).items() if what is not True] == [
        str(folder / "notes.txt"), str(folder / "parts" / "99999.mdb")
    ]  # fmt: skip
    assert "it holds what pipefix did not make, such as 'notes.txt'" in found.left_alone[0]


@pytest.mark.parametrize("what", ["a link", "a pipe", "a directory"])
def test_a_log_that_is_no_file_of_its_own_is_neither_read_nor_written(tmp_path, what):
    (tmp_path / "bashrc").write_text("")
    if what == "a link":
        (tmp_path / logs.LOG).symlink_to(tmp_path / "bashrc")
    elif what == "a pipe":
        os.mkfifo(tmp_path / logs.LOG)
    else:
        (tmp_path / logs.LOG).mkdir()
    with pytest.raises(PipefixError, match="log"), logs.Log(tmp_path) as log:
        log.write("started", target="x")
    assert (tmp_path / "bashrc").read_text() == ""


NAMES = ["at", "event", "step", "id", "target", "makes", "before", "after", "why", "predicted", "measured", "same"]
EVENTS = ["started", "begun", "keeping", "kept", "dropped", "undoing", "undone", "swept", "left", "ended", "\0", "reboot"]
ODD = [
    "\0",
    "\ud800",
    "x" * 3000,
    "9" * 400,
    10**400,
    -1,
    0,
    1,
    2,
    2**63,
    2**70,
    1e308,
    None,
    True,
    [],
    {},
    "[loader]\nnum_workers = 9",
]
PLAN = planfile.encode(planfile.PlanFile(loader=planfile.LoaderChange(num_workers=2)))
LINES = st.one_of(
    st.fixed_dictionaries(
        {"event": st.sampled_from(EVENTS)},
        optional={name: st.sampled_from([*ODD, 1, 1, PLAN, f"{CACHES}/source"]) for name in NAMES if name != "event"},
    ).map(json.dumps),
    st.text(max_size=30),
    st.sampled_from(
        [
            "[" * 20_000,
            '{"event": "ended", "measured": ' + "[" * 20_000,
            '{"event": "begun", "step": 1e400}',
            "null",
            "[]",
            '{"event": "begun", "step": 9007199254740993}',
            '{"event": "kept", "step": "1"}',
        ]
    ),
)


@settings(deadline=None)
@given(st.lists(LINES, max_size=6), st.sampled_from([None, PLAN, "[loader", 'format = "pipefix.plan/1"']))
def test_lines_of_any_kind_end_in_a_sentence_or_are_passed_over(tmp_path_factory, lines, plan):
    bench = Bench(tmp_path_factory.getbasetemp(), [step("workers-2", 1.8)], [])
    bench.out.mkdir(exist_ok=True)
    (bench.out / logs.LOG).write_bytes("\n".join(lines).encode("utf-8", "replace"))
    (bench.out / planfile.NAME).unlink(missing_ok=True)
    if plan is not None:
        (bench.out / planfile.NAME).write_text(plan)
    for act in (bench.run, lambda: undo(bench.out)):
        with contextlib.suppress(PipefixError):
            act()
