"""The page about remedies names every remedy and the figures that the code really uses."""

from __future__ import annotations

from pathlib import Path

from pipefix.plan import advise, case, model
from pipefix.plan.remedies import caches, fetching, starting, storage, wire
from pipefix.plan.remedy import all_remedies

PAGE = " ".join((Path(__file__).resolve().parents[2] / "docs" / "remedies.md").read_text(encoding="utf-8").split())


def test_every_remedy_is_in_the_list() -> None:
    ids = {"workers-N" if kind.id == "workers" else kind.id for kind in all_remedies()}
    listed = {line.split("`")[1] for line in PAGE.split("| `")[1:] for line in [f"`{line}"]}
    assert ids == listed


def test_its_figures_are_the_codes() -> None:
    said = [
        f"{model.FLOOR_MAKING * 1e3:g} ms in the worker, {model.FLOOR_TAKING * 1e3:g} ms in the training process",
        f"{model.MAKING_RATE.value / 1e9:g} GB/s into fresh shared memory, {model.TAKING_RATE.value / 1e9:g} GB/s out of it",
        f"the logarithm of a speed-up to {model.MODEL_DOUBT:.0%}".replace("%", " %"),
        f"What gains less than {advise.WORTH_MAKING - 1:.0%} is declined".replace("%", " %"),
        f"{storage.FIND_SECONDS.value * 1e6:g} µs to find them",
        f"copying the batch at {wire.STACK_RATE.value / 1e9:g} GB/s",
        f"{wire.SLOT_RATE.value / 1e9:g} GB/s into memory that was used before",
        f"with {starting.FORK_SECONDS.value * 1e3:g} ms a worker",
        f"{fetching.CALL_SECONDS.value * 1e6:g} µs less Python a text",
        f"A record is looked up in {caches.FIND_SECONDS.value * 1e6:g} µs and copied at {caches.COPY_RATE.value / 1e9:g} GB/s",
        f"writing it at {caches.WRITE_RATE / 1e6:g} MB/s",
        f"{case.PIXEL_BYTES.value:g} bytes a pixel, {case.PIXEL_BYTES.low:g} to {case.PIXEL_BYTES.high:g}",
    ]
    assert [one for one in said if one not in PAGE] == []
