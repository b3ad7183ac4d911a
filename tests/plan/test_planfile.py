"""The plan file: written for people, edited by anybody, and read again or refused with a sentence. Nothing else comes of it."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.utils.data import DataLoader

from pipefix.loader.planning import as_planned, planned
from pipefix.plan import planfile
from pipefix.plan.planfile import AugmentationChange, BeforeAfter, CacheChange, LoaderChange, PlanFile, TunedOn
from pipefix.vocabulary.errors import PipefixError, UnreadableFile
from pipefix.vocabulary.quantity import Interval
from tests.fixes.benchtop import Lines

FULL = PlanFile(
    pipefix="0.1.0",
    created="2026-01-02T03:04:05+00:00",
    target="train_data.py:loader",
    machine=TunedOn(cores=4.0, cpu_model="A CPU", memory_bytes=16_000_000_000, gpus=["H100"]),
    loader=LoaderChange(
        num_workers=4,
        persistent_workers=True,
        evidence=BeforeAfter(before=Interval(500.0, 490.0, 510.0), after=Interval(1320.0, 1290.0, 1350.0), run="run.json"),
    ),
    cache=CacheChange(path="cache-decoded", store="decoded"),
    augmentation=AugmentationChange(backend="kornia", operations=["RandomResizedCrop", "RandomHorizontalFlip"]),
)
TEXT = """\
# Written by pipefix. Edit it freely; taking plan=... away from the loader is the way back.
format = "pipefix.plan/1"
pipefix = "0.1.0"
created = "2026-01-02T03:04:05+00:00"
target = "train_data.py:loader"

[machine]
cores = 4.0
cpu_model = "A CPU"
memory_bytes = 16000000000
gpus = ["H100"]

[loader]
num_workers = 4
persistent_workers = true

[loader.evidence]
before = { value = 500.0, low = 490.0, high = 510.0 }
after = { value = 1320.0, low = 1290.0, high = 1350.0 }
run = "run.json"

[cache]
path = "cache-decoded"
store = "decoded"
format = "lmdb"

[augmentation]
backend = "kornia"
operations = ["RandomResizedCrop", "RandomHorizontalFlip"]
"""


def test_is_written_for_people() -> None:
    assert planfile.encode(FULL) == TEXT


def test_is_read_as_it_was_written(tmp_path: Path) -> None:
    path = tmp_path / planfile.NAME
    planfile.write(FULL, path)
    assert planfile.read(path) == FULL
    assert list(tmp_path.iterdir()) == [path]


def test_people_may_leave_out_what_they_do_not_change() -> None:
    plan = planfile.decode('format = "pipefix.plan/1"\n[loader]\nnum_workers = 0\n', origin="it")
    assert plan.loader == LoaderChange(num_workers=0)
    assert plan.cache is None
    assert plan.machine is None


@given(st.text(), st.lists(st.text(), max_size=3), st.floats(allow_nan=False))
def test_any_text_and_figure_survives(target: str, names: list[str], value: float) -> None:
    plan = PlanFile(
        target=target,
        augmentation=AugmentationChange(
            backend="dali", operations=names, evidence=BeforeAfter(before=Interval(value, 0, 1), after=Interval(1, 1, 1))
        ),
    )
    assert planfile.decode(planfile.encode(plan), origin="it") == plan


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("num_workers = 4", "num_workers = -1", "p.toml, line 14: loader.num_workers is -1, but expected `int` >= 0."),
        ("num_workers = 4", 'num_workers = "4"',
         "p.toml, line 14: loader.num_workers is '4', but expected `int | null`, got `str`."),
        ("num_workers = 4", "num_worker = 4", "p.toml, line 14: there is no setting called 'loader.num_worker'."),
        ("[cache]", "[chache]", "p.toml, line 22: there is no setting called 'chache'."),
        ('store = "decoded"', 'store = "jpeg"',
         "p.toml, line 24: cache.store is 'jpeg', but it is one of source, resized, decoded, sample, rows."),
        ("num_workers = 4", 'start_method = "thread"',
         "p.toml, line 14: loader.start_method is 'thread', but it is one of fork, forkserver, spawn."),
        ("low = 490.0", 'low = "x"', "p.toml, line 18: loader.evidence.before.low is 'x', but expected `float`, got `str`."),
        ("cores = 4.0", "cores = 0", "p.toml, line 8: machine.cores is 0, but expected `float` > 0.0."),
        ("cores = 4.0\n", "", ("p.toml, line 7: machine is {'cpu_model': 'A CPU', 'memory_bytes': 16000000000, 'gpus': ['H100']}, "
          "but object missing required field `cores`.")),
        ('format = "pipefix.plan/1"', 'format = "pipefix.plan/2"',
         "p.toml was written by a newer pipefix: its format is 'pipefix.plan/2', and this one reads up to 'pipefix.plan/1'."),
        ('format = "pipefix.plan/1"\n', "", "p.toml is not a plan file: its \"format\" is None, not 'pipefix.plan/1'."),
        ("cores = 4.0", "cores = = 4", "p.toml is not a plan file: it is not TOML (Invalid value (at line 8, column 9))."),
    ],
)  # fmt: skip
def test_says_which_line_is_wrong(old: str, new: str, said: str) -> None:
    assert old in TEXT
    with pytest.raises(UnreadableFile) as caught:
        planfile.decode(TEXT.replace(old, new, 1), origin="p.toml")
    assert str(caught.value) == said
    assert caught.value.advice


def test_a_missing_file_and_bytes_that_are_no_text(tmp_path: Path) -> None:
    with pytest.raises(UnreadableFile, match="There is no plan file"):
        planfile.read(tmp_path / "none.toml")
    bad = tmp_path / "bad.toml"
    bad.write_bytes(b"\xff\xfe")
    with pytest.raises(UnreadableFile, match="byte 0 is not UTF-8 text"):
        planfile.read(bad)


def test_a_place_that_cannot_be_written_keeps_the_old_plan(tmp_path: Path) -> None:
    with pytest.raises(UnreadableFile, match="could not be written: No such file or directory"):
        planfile.write(FULL, tmp_path / "absent" / "p.toml")
    (tmp_path / "taken").mkdir()
    with pytest.raises(UnreadableFile, match="could not be written: Is a directory"):
        planfile.write(FULL, tmp_path / "taken")
    assert [path.name for path in tmp_path.iterdir()] == ["taken"]


def test_says_how_a_machine_differs() -> None:
    here = TunedOn(cores=2.0, memory_bytes=4_000_000_000)
    machine = FULL.machine
    assert machine is not None
    assert machine.differences(machine) == []
    assert machine.differences(here) == [
        "it was tuned on 4 cores, here there are 2",
        "it was tuned with H100, here there is no GPU",
        "it was tuned with 16.0 GB of memory, here there are 4.00 GB",
    ]


def test_keys_of_earlier_versions_are_read_over() -> None:
    text = f'format = "{planfile.FORMAT}"\n[loader]\nnum_workers = 2\nsharing = "file_system"\nbatched_fetch = false\n'
    assert planfile.decode(text, origin="plan").loader == planfile.LoaderChange(num_workers=2)


HERE = TunedOn(cores=2.0, memory_bytes=16_000_000_000)
HUGE = int("9" * 400)
VALUES = [
    "\0", "a\0b", "", "x" * 3000, "\u202e", "inf", "nan", "-inf", "../..", "2",
    -1, 0, HUGE, -HUGE, 2**63, 2**64, 1e308, True, [], {},
]  # fmt: skip
TABLES = ["", "loader", "cache", "augmentation", "machine", "loader.evidence", "cache.evidence.before"]
KEYS = [
    "format", "pipefix", "created", "target", "num_workers", "prefetch_factor", "fuse", "engine", "path", "store", "backend",
    "operations", "cores", "memory_bytes", "gpus", "before", "after", "value", "low", "high", "run", "nothing",
]  # fmt: skip


def toml(value: Any) -> str:
    return value if value in ("inf", "nan", "-inf") else "{}" if value == {} else json.dumps(value)


@st.composite
def plans(draw) -> str:
    """A plan as `fix` writes it, with lines that somebody put in the place of others."""
    text = planfile.encode(
        PlanFile(machine=HERE, loader=LoaderChange(num_workers=2), cache=CacheChange(path="cache", store="source"))
    )
    for _ in range(draw(st.integers(1, 3))):
        line = f"{draw(st.sampled_from(KEYS))} = {toml(draw(st.sampled_from(VALUES)))}"
        where = draw(st.sampled_from(["over", "under"]))
        lines = text.splitlines()
        same = [number for number, old in enumerate(lines) if old.partition(" =")[0] == line.partition(" =")[0]]
        if where == "over" and same:
            lines[same[0]] = line
        else:
            table = draw(st.sampled_from(TABLES))
            at = lines.index(f"[{table}]") if f"[{table}]" in lines else -1
            lines[at + 1 : at + 1] = [line] if at >= 0 or not table else [f"[{table}]", line]
        text = "\n".join(lines) + "\n"
    return text


@pytest.fixture(scope="module")
def loader(tmp_path_factory) -> Any:
    return DataLoader(Lines(tmp_path_factory.mktemp("lines")), batch_size=4)


@settings(deadline=None)
@given(text=st.one_of(plans(), st.text(max_size=60), st.text(max_size=60).map(lambda text: f'format = "pipefix.plan/1"\n{text}')))
def test_text_of_any_kind_is_a_plan_or_refused(tmp_path_factory, loader, text):
    try:
        plan = planfile.decode(text, origin="the plan")
    except UnreadableFile as error:
        assert str(error).startswith("the plan") and len(str(error)) < 2000  # noqa: PT017
        return
    assert planfile.decode(planfile.encode(plan), origin="written again") == plan or "nan" in text
    if plan.machine is not None:
        plan.machine.differences(HERE)
    folder = tmp_path_factory.getbasetemp()
    for use in (lambda: as_planned.loader(loader, plan, folder), lambda: planned.module(loader.dataset, plan, folder)):
        try:
            use()
        except PipefixError as error:
            assert error.exit_code != 70  # noqa: PT017


@given(st.binary(max_size=40))
def test_bytes_of_any_kind_are_a_plan_or_refused(tmp_path_factory, data):
    path = tmp_path_factory.getbasetemp() / "any.toml"
    path.write_bytes(data)
    with pytest.raises(UnreadableFile):
        planfile.read(path)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('format = "pipefix.plan/' + "9" * 5000 + '"', "was written by a newer pipefix"),
        ('format = "pipefix.plan/1"\n[cache]\npath = "a\\u0000b"\nstore = "source"', "line 3: cache.path is 'a\\x00b'"),
        ('format = "pipefix.plan/1"\n[machine]\ncores = inf', "machine.cores"),
        ('format = "pipefix.plan/1"\n[machine]\ncores = 2.0\nmemory_bytes = ' + "9" * 400, "machine.memory_bytes"),
        (
            'format = "pipefix.plan/1"\n[machine]\ncores = 2.0\nmemory_bytes = 0x' + "f" * 6000,
            "machine.memory_bytes is a huge number",
        ),
        ("[" * 100_000, "it is not TOML"),
    ],
)
def test_what_is_wrong_is_told_in_a_short_sentence(text, said):
    with pytest.raises(UnreadableFile) as refused:
        planfile.decode(text, origin="plan")
    assert said in str(refused.value) and len(str(refused.value)) < 2000


@pytest.mark.parametrize("what", ["a folder", "a pipe", "/dev/zero", "a name with \0"])
def test_what_is_no_file_is_refused_at_once(tmp_path, what):
    path = Path(what) if what.startswith("/") else tmp_path / what
    if what == "a folder":
        path.mkdir()
    elif what == "a pipe":
        os.mkfifo(path)
    with pytest.raises(UnreadableFile, match="could not be read") as told:
        planfile.read(path)
    assert (str(path / planfile.NAME) in told.value.advice) == (what == "a folder"), "it is told with the file to name"


def test_a_mark_that_editors_put_before_the_text_is_read_over(tmp_path):
    path = tmp_path / "pipefix.plan.toml"
    path.write_bytes(b'\xef\xbb\xbfformat = "pipefix.plan/1"\r\n[loader]\r\nnum_workers = 3\r\n')
    assert planfile.read(path).loader.num_workers == 3
