"""The page about remedies names every remedy and the figures that the code really uses."""

from __future__ import annotations

from pathlib import Path

from pipefix.diagnosis import throughput
from pipefix.plan import advise, case
from pipefix.plan.remedies import caches, fetching, moving_batches
from pipefix.plan.remedy import all_remedies

PAGE = " ".join((Path(__file__).resolve().parents[2] / "docs" / "remedies.md").read_text(encoding="utf-8").split())


def test_every_remedy_is_in_the_list() -> None:
    ids = {{"workers": "workers-N", "fuse": "fuse-MODE"}.get(kind.id, kind.id) for kind in all_remedies()}
    listed = {line.split("`")[1] for line in PAGE.split("| `")[1:] for line in [f"`{line}"]}
    assert ids == listed


def test_its_figures_are_the_codes() -> None:
    said = [
        f"{throughput.FLOOR_MAKING * 1e3:g} ms in the worker, {throughput.FLOOR_TAKING * 1e3:g} ms in the training process",
        f"{throughput.MAKING_RATE.value / 1e9:g} GB/s into fresh shared memory",
        f"{throughput.TAKING_RATE.value / 1e9:g} GB/s out of it",
        f"up to {throughput.CROWDING.value:.0%} of its CPU time more".replace("%", " %"),
        f"the logarithm of a speed-up to {throughput.MODEL_DOUBT:.0%}".replace("%", " %"),
        f"A gain below {advise.WORTH_MAKING - 1:.0%} is declined".replace("%", " %"),
        f"copying the batch at {moving_batches.STACK_RATE.value / 1e9:g} GB/s",
        f"{moving_batches.SLOT_RATE.value / 1e9:g} GB/s into memory that was used before",
        f"{fetching.CALL_SECONDS.value * 1e6:g} µs less Python a text",
        f"Looking up a record takes {caches.FIND_SECONDS.value * 1e6:g} µs",
        f"copying it runs at {caches.COPY_RATE.value / 1e9:g} GB/s",
        f"writing it at {caches.WRITE_RATE / 1e6:g} MB/s",
        f"{case.PIXEL_BYTES.value:g} bytes a pixel, {case.PIXEL_BYTES.low:g} to {case.PIXEL_BYTES.high:g}",
    ]
    assert [word for word in said if word not in PAGE] == []
