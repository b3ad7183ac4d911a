"""Pipelines of the second planted set: the same from a seed, of every kind that is promised, and code that runs."""

from __future__ import annotations

import itertools
import json
import pickle
import sys
from dataclasses import asdict
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

from benchmarks.unseen.judged import judged_anew
from benchmarks.unseen.parts import FAMILIES, known
from benchmarks.unseen.pipeline import LEADS, Unseen, draw, healthy, text, tuned
from tests.doubles.measured import measured

DRAWN = draw(240)


def test_the_same_from_the_same_seed_and_of_every_kind() -> None:
    assert draw(30) == DRAWN[:30]
    assert draw(30, seed=1) != DRAWN[:30]
    assert {each.family for each in DRAWN} == {family.name for family in FAMILIES}
    assert {each.truth for each in DRAWN} == {"storage", "decode", "augment", "collate", "ipc", "step", "sampler"}
    assert {each.form for each in DRAWN} == {"inline", "helper", "method"}
    assert {each.shape for each in DRAWN} == {"map", "stream", "getitems"}
    assert {each.workers for each in DRAWN} == {0, 1, 2, 4, 8}
    assert sum(each.neighbour for each in DRAWN) == 120
    assert min(each.seconds for each in DRAWN) < 50e-6
    assert max(each.seconds for each in DRAWN) > 0.5


def test_healthy_pipelines_are_made_ahead_of_a_step_of_their_own() -> None:
    every = healthy(66)
    assert {(each.truth, each.consumer, each.neighbour) for each in every} == {("step", "real", False)}
    assert all(each.workers and each.sampler != "own" for each in every)
    assert len({each.name for each in every}) == 66


@pytest.mark.parametrize("timed", [False, True])
def test_every_file_is_python(timed: bool) -> None:
    for each in DRAWN:
        compile(text(each, "data", timed=timed), each.name, "exec")
        assert ("charge(" in text(each, "data", timed=timed)) is timed


def test_the_stage_that_is_to_limit_is_made_to_lead() -> None:
    for each in DRAWN:
        base = {place: 1e-4 * (place + 1) for place in range(len(each.parts))}
        led = tuned(each, base)
        spent: dict[str, float] = {}
        for place, part in enumerate(each.parts):
            spent[part.stage] = spent.get(part.stage, 0.0) + base[place] * led.repeats[place]
        if each.truth in spent:
            rest = [seconds for stage, seconds in spent.items() if stage != each.truth]
            assert spent[each.truth] >= 0.9 * LEADS * max(rest, default=0.0)


def executed(each: Unseen, folder: Path, name: str) -> Any:
    module = ModuleType(name)
    sys.modules[name] = module
    exec(compile(text(each, str(folder), timed=name == "timed"), name, "exec"), vars(module))
    return module


@pytest.mark.filterwarnings("ignore:This DataLoader will create:UserWarning", "ignore:The given NumPy array is not:UserWarning")
@pytest.mark.parametrize("family", ["json", "own-csv", "zip", "pickle", "sqlite", "memory"])
def test_both_copies_give_the_same_samples(family: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "modules", dict(sys.modules))
    chosen = known(family)
    if chosen.lay_out is not None:
        chosen.lay_out(tmp_path, np.random.default_rng(1))
    for each in [each for each in DRAWN if each.family == family][:3]:
        program = tuned(each, dict.fromkeys(range(len(each.parts)), 1e-3))
        plain, timed = executed(program, tmp_path, "plain"), executed(program, tmp_path, "timed")
        samples = [list(itertools.islice(iter(module.dataset), 3)) for module in (plain, timed)]
        assert all((first == second).all() for first, second in zip(*samples, strict=True))
        assert set(timed.SPENT) == set(range(len(each.parts)))


@pytest.mark.parametrize(("lead", "outcome"), [(3.0, "right"), (1.1, "drifted")])
def test_a_kept_measurement_is_judged_by_the_rules_of_today(lead: float, outcome: str, tmp_path: Path) -> None:
    drawn = next(each for each in DRAWN if each.truth == "decode" and not each.workers)
    kept = {"really": [f"decode {lead:.2f}x", "decode infx"], "pipeline": asdict(drawn), "outcome": "inconclusive", "remedy": None}
    (tmp_path / f"{drawn.name}.json").write_text(json.dumps(kept))
    (tmp_path / f"{drawn.name}.pickle").write_bytes(pickle.dumps(measured({"storage": 1.0, "decode": 3.0})))
    result = judged_anew(drawn.name, tmp_path)
    assert result is not None
    assert (result["outcome"], result["said"], result["anew"], result["really"]) == (outcome, "decode", True, kept["really"])
    assert judged_anew("of no name", tmp_path) is None
