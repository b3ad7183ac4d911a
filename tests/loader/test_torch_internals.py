"""A torch whose private names are others: everything falls back to what `DataLoader` does, nothing raises, batches are the same."""

from __future__ import annotations

import json
import subprocess
import textwrap
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from torch.utils.data import DataLoader

from pipefix.hooks import torch_internals

ROOT = Path(__file__).resolve().parents[2]
WITHOUT_PRIVATE_NAMES = """
import json, warnings
import torch
from torch.utils.data import DataLoader
import tests.doubles.torch_without_private_names

warnings.simplefilter("error", RuntimeWarning)
"""


@pytest.fixture
def told_by(preloaded: str) -> Callable[[str], Any]:
    """What a program prints whose torch has no private names."""

    def told(code: str) -> Any:
        done = subprocess.run(
            [*preloaded.split(), "-c", WITHOUT_PRIVATE_NAMES + textwrap.dedent(code)],
            cwd=ROOT, capture_output=True, text=True, timeout=100,
        )  # fmt: skip
        assert not done.returncode, done.stderr
        assert not done.stderr
        return json.loads(done.stdout.splitlines()[-1])

    return told


def test_this_torch_has_what_is_relied_on() -> None:
    assert torch_internals.why_plain() is None


def test_batches_are_those_of_a_plain_loader(told_by: Callable[[str], Any]) -> None:
    answers = told_by(
        """
        import random, numpy
        from pipefix import FastLoader
        from tests.loader.pipelines import Mixed
        from tests.loader.likeness import assert_same
        def made(kind, **more):
            torch.manual_seed(3)
            loader = kind(Mixed(), batch_size=4, shuffle=True, **more)
            epochs = []
            for _ in range(2):
                random.seed(4); numpy.random.seed(5)
                epochs.append(list(loader))
            return epochs, loader
        told = {}
        for workers, engines in ((0, ["auto"]), (1, ["auto", "processes", "torch"])):
            expected, _ = made(DataLoader, num_workers=workers)
            for engine in engines:
                epochs, loader = made(FastLoader, num_workers=workers, engine=engine, augment=lambda batch: batch)
                assert_same(epochs, expected)
                told[f"{workers} {engine}"] = loader.explain()
        print(json.dumps(told))
        """
    )
    assert len(answers) == 4
    assert all(sentence.startswith("As DataLoader does it: torch 2") for sentence in answers.values())


def test_an_epoch_is_gone_on_with_and_what_cannot_be_had_is_said(told_by: Callable[[str], Any]) -> None:
    answers = told_by(
        """
        from pipefix import FastLoader
        from tests.loader.pipelines import Faulty, Tensors
        def loader():
            torch.manual_seed(3)
            return FastLoader(Tensors(), batch_size=4, shuffle=True)
        expected = [batch[:, 0].tolist() for batch in loader()]
        left = loader()
        batches = iter(left)
        seen = [next(batches)[:, 0].tolist() for _ in range(5)]
        other = loader()
        torch.manual_seed(9)
        other.load_state_dict(left.state_dict())
        seen += [batch[:, 0].tolist() for batch in other]
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            list(FastLoader(Tensors(), batch_size=4, on_bad="skip"))
        faulty = FastLoader(Faulty(), batch_size=4)
        batches, raised = iter(faulty), 0
        for _ in range(4):
            try:
                next(batches)
            except KeyError:
                raised += 1
        behind = [raised, faulty.state_dict()["batches"]]
        print(json.dumps({"same": seen == expected, "said": [str(one.message) for one in caught], "behind": behind}))
        """
    )
    assert answers["same"] and answers["behind"] == [1, 4] and len(answers["said"]) == 1
    assert answers["said"][0].startswith("on_bad='skip' cannot be had: torch 2")


@pytest.mark.system
def test_the_portable_hand_over_and_the_watch_go_on(told_by: Callable[[str], Any]) -> None:
    answers = told_by(
        """
        import pipefix
        from tests.loader.pipelines import Tensors
        def loader():
            return DataLoader(Tensors(), batch_size=4, num_workers=2)
        expected = torch.cat(list(loader()))
        prepared = torch.cat(list(pipefix.prepare(loader())))
        watched = loader()
        with pipefix.watch(watched):
            seen = torch.cat(list(watched))
        fast = pipefix.FastLoader(Tensors(), batch_size=4, num_workers=2)
        with pipefix.watch(fast):
            too = torch.cat(list(fast))
        print(json.dumps([torch.equal(expected, one) for one in (prepared, seen, too)]))
        """
    )
    assert answers == [True, True, True]


def test_a_loader_of_two_type_parameters(told_by: Callable[[str], Any]) -> None:
    """As on torch's main branch."""
    code = """
        import torch.utils.data as data, typing
        A, B = typing.TypeVar("A"), typing.TypeVar("B")
        class Two(DataLoader, typing.Generic[A, B]): pass
        data.DataLoader = data.dataloader.DataLoader = Two
        from pipefix.loader.fast_loader import FastLoader
        from tests.loader.pipelines import Tensors
        print(json.dumps([issubclass(FastLoader, Two), len(list(FastLoader(Tensors(), batch_size=4)))]))
        """
    assert told_by(code) == [True, 16]


def test_order_is_kept_where_torch_knows_nothing_else() -> None:
    loader = DataLoader([1, 2, 3])  # type: ignore[arg-type]
    vars(loader).pop("in_order")
    assert torch_internals.in_order(loader)
