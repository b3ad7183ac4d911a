"""A few planted pipelines with one clearly limiting stage: the whole verdict must be right.

`scripts/bench verdict` judges hundreds, with dominance down to 1.2.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator
from typing import Any

from measured.planted import quiet
from measured.planted.children import in_child
from measured.planted.fixes import plant
from measured.planted.judge import judge, preload
from measured.planted.pipelines import Planted
from measured.planted.server import Server
from measured.planted.sources import block_files
from measured.row import Row, holds

BUDGET = 4.0
PATIENCE_S = 10.0

CASES = (
    plant("storage: many small reads", storage=3, source="open", step=0.8),
    plant("storage: two workers wait for a socket", workers=2, storage=6, source="socket", shape="methods"),
    plant("decode: JPEG, no consumer", decode=3, truth="decode"),
    plant("decode: a stream of PNG in a worker", workers=1, decode=3, format="png", shape="stream"),
    plant("augment: a folder, two workers", workers=2, augment=3, shape="folder", step=0.5),
    plant("collate: padding lists", collate=3, format="json", step=1),
    plant("ipc: objects through the pipe", workers=1, decode=0.3, augment=0.3, ipc=3, step=0.3),
    plant("step: emulated, two workers", workers=2, decode=1, step=4),
    plant("step: real and computing, a worker", workers=1, decode=0.8, step=6, consumer="real"),
    plant("balanced: decode and augment", decode=2, augment=2, truth="balanced"),
)


def rows() -> Iterator[Row]:
    preload()
    block_files()
    broken = []
    with Server():
        for planted in CASES:
            quiet.wait(PATIENCE_S)
            result = probed(planted)
            if "error" in result:
                broken.append(f"{planted.name}: {result['error']}\n{result.get('log', '')}")
                continue
            wrong = amiss(planted, result)
            note = f"{'; '.join([*wrong, result['drift'] or ''])}: {result['sentence']}" if wrong else result["sentence"]
            yield holds(f"verdict: {planted.name}", int(not wrong), 1, note=note, source="the stage that was planted")
    if broken:
        raise RuntimeError("\n".join(broken[::-1]))


def probed(planted: Planted) -> dict[str, Any]:
    """Where so short a probe leaves the verdict open it asks for a longer budget, and gets one. No other answer is asked again."""
    result: dict[str, Any] = {}
    for budget in (BUDGET, 2 * BUDGET):
        result = in_child(functools.partial(judge, planted, budget=budget), timeout=180)
        if result.get("said") != "inconclusive":
            break
    return result


def amiss(planted: Planted, result: dict[str, Any]) -> list[str]:
    """What is wrong with a verdict."""
    if planted.truth == "balanced":
        # Half a tenth of noise makes either of the two the first; never another stage, which costs next to nothing.
        return [] if result["said"] in ("balanced", "inconclusive", "decode", "augment") else [f"said {result['said']}"]
    found = list(result["broken"])
    kind = "step-bound" if planted.truth == "step" else "input-bound"
    if (result["kind"], result["said"]) != (kind, planted.truth):
        found.append(f"said {result['kind']}, {result['said']}")
    if result["confidence"] < 0.95:
        found.append(f"confidence {result['confidence']:.2f}")
    if {"ipc": "hand"}.get(planted.truth, planted.truth) not in result["sentence"].lower():
        found.append("its sentence names another stage")
    return found
