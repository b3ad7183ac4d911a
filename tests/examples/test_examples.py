"""The examples work as printed, with few samples: each is a target with a step, and a program of one rank."""

from __future__ import annotations

import ast
import json
import os
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from pipefix.subject.load import load

ROOT = Path(__file__).resolve().parents[2]
SAMPLES = "64"


@pytest.fixture(scope="module")
def examples(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("copied") / "examples"
    shutil.copytree(ROOT / "examples", folder, ignore=shutil.ignore_patterns("data", "__pycache__"))
    return folder


@pytest.fixture(autouse=True)
def few_samples(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("EXAMPLE_SAMPLES", SAMPLES)
    modules, path = set(sys.modules), list(sys.path)
    yield
    sys.path[:] = path
    for name in set(sys.modules) - modules:
        if "copied" in (getattr(sys.modules[name], "__file__", None) or ""):
            del sys.modules[name]


@pytest.fixture(autouse=True)
def cores_stay(monkeypatch: pytest.MonkeyPatch) -> None:
    """One example takes its process's away."""
    monkeypatch.setattr(os, "sched_setaffinity", lambda *_: None, raising=False)


@pytest.mark.parametrize(
    ("name", "workers"),
    [("text", 0), ("tabular", 0), ("images", 0), ("wrong_suspect", 4), ("augmentation", 2), ("healthy", 1)],
)
def test_an_example_is_a_target_with_a_step(name: str, workers: int, examples: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EXAMPLE_SAMPLES", "4" if name == "images" else SAMPLES)
    subject = load(str(examples / f"{name}.py"))
    assert subject.target.endswith(":train_loader")
    assert subject.settings.num_workers == workers
    assert subject.consumer is not None
    dataset = subject.loader.dataset
    subject.consumer(subject.loader.collate_fn([dataset[index] for index in range(4)]))


def test_two_ranks_are_a_program_of_one_too(examples: Path, preloaded: str) -> None:
    """In a process of its own: a group of ranks, once made, stays, and autograd that was used before a fork refuses to go on."""
    rank = {"RANK": "0", "WORLD_SIZE": "1", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "0"}
    command = [*shlex.split(preloaded), str(examples / "ddp.py"), "--samples", "64"]
    ended = subprocess.run(command, env={**os.environ, **rank}, capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stderr


def test_the_notebook_is_python_and_asks_for_what_there_is(examples: Path) -> None:
    """It runs from end to end in tests/system/test_examples.py."""
    import pipefix

    asked = set()
    for cell in json.loads((examples / "notebook.ipynb").read_text(encoding="utf-8"))["cells"]:
        if cell["cell_type"] == "code":
            for node in ast.walk(ast.parse("".join(cell["source"]))):
                if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "pipefix":
                    asked.add(node.attr)
    assert asked == {"probe", "compare"}
    assert all(hasattr(pipefix, name) for name in asked)


def test_nothing_that_is_drawn_or_run_is_kept_in_it() -> None:
    """Notebooks are committed without what they printed."""
    for path in (ROOT / "examples").glob("*.ipynb"):
        for cell in json.loads(path.read_text(encoding="utf-8"))["cells"]:
            assert not cell.get("outputs"), path
