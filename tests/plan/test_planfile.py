"""The plan file: written, edited by people, read again, and refused with the line that is wrong."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipefix.plan import planfile
from pipefix.plan.planfile import AugmentationChange, BeforeAfter, CacheChange, LoaderChange, PlanFile, TunedOn
from pipefix.vocabulary.errors import UnreadableFile
from pipefix.vocabulary.quantity import Interval

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
