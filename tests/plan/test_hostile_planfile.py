"""A plan may come from anybody, and be edited by anybody: it is read, or refused with a sentence. Nothing else ever comes of it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pipefix.loader.planning import as_planned, planned
from pipefix.plan import planfile
from pipefix.vocabulary.errors import PipefixError, UnreadableFile
from tests.fixes.benchtop import Lines

HERE = planfile.TunedOn(cores=2.0, memory_bytes=16_000_000_000)
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
        planfile.PlanFile(
            machine=HERE, loader=planfile.LoaderChange(num_workers=2), cache=planfile.CacheChange(path="cache", store="source")
        )
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
    from torch.utils.data import DataLoader

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
    import os

    path = Path(what) if what.startswith("/") else tmp_path / what
    if what == "a folder":
        path.mkdir()
    elif what == "a pipe":
        os.mkfifo(path)
    with pytest.raises(UnreadableFile, match="could not be read"):
        planfile.read(path)


def test_a_mark_that_editors_put_before_the_text_is_read_over(tmp_path):
    path = tmp_path / "pipefix.plan.toml"
    path.write_bytes(b'\xef\xbb\xbfformat = "pipefix.plan/1"\r\n[loader]\r\nnum_workers = 3\r\n')
    assert planfile.read(path).loader.num_workers == 3


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ('[loader]\nstart_method = "thread"', "'thread', but it is one of fork, forkserver, spawn"),
        ('[augmentation]\nbackend = "none"', "'none', but it is one of kornia, dali"),
    ],
)
def test_a_choice_that_there_is_not_names_those_that_there_are(line, said):
    with pytest.raises(UnreadableFile, match=said):
        planfile.decode(f'format = "pipefix.plan/1"\n{line}\n', origin="plan")


def test_the_folder_of_a_plan_is_told_with_the_file_to_name(tmp_path):
    with pytest.raises(UnreadableFile, match="could not be read: it is a folder") as told:
        planfile.read(tmp_path)
    assert str(tmp_path / "pipefix.plan.toml") in told.value.advice
