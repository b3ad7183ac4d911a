"""The trainers' callbacks: the loader that trains is watched while it trains."""

from __future__ import annotations

import importlib
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from torch.utils.data import DataLoader

from pipefix.vocabulary.errors import MissingExtra


def windows(path: Path) -> list[dict]:  # type: ignore[type-arg]
    return [json.loads(line) for line in path.read_text().splitlines()]


@pytest.fixture
def lightning(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """Our module for Lightning, with nothing of Lightning but the base class."""
    monkeypatch.setitem(sys.modules, "lightning", SimpleNamespace())
    monkeypatch.setitem(sys.modules, "lightning.pytorch", SimpleNamespace())
    monkeypatch.setitem(sys.modules, "lightning.pytorch.callbacks", SimpleNamespace(Callback=object))
    monkeypatch.delitem(sys.modules, "pipefix.watching.lightning", raising=False)
    yield importlib.import_module("pipefix.watching.lightning")
    del sys.modules["pipefix.watching.lightning"]


def test_lightnings_collections_of_loaders(lightning: Any, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture):
    loaders = [DataLoader([1, 2]), DataLoader([3])]  # type: ignore[arg-type]
    callback = lightning.LightningWatch(every=60)
    callback.on_train_epoch_start(SimpleNamespace(train_dataloader={"a": loaders}), None)
    assert lightning._loaders(SimpleNamespace(flattened=loaders)) == loaders
    assert [watch.loader for watch in callback.watches] == loaders
    callback.on_exception(None, None, KeyboardInterrupt())
    monkeypatch.setattr(lightning, "watch", lambda *_, **__: 1 / 0)
    callback.on_fit_start(SimpleNamespace(fit_loop=SimpleNamespace(_data_source=SimpleNamespace(instance=loaders))), None)
    callback.on_train_epoch_start(SimpleNamespace(train_dataloader=loaders), None)
    assert "could not be watched; the training goes on" in caplog.text
    assert callback.watches == []


def test_each_of_lightnings_loaders_is_watched_as_was_asked_for(lightning: Any, tmp_path: Path):
    """Only the first had ``on_drift`` and ``every``. The file is the first one's alone."""
    callback = lightning.LightningWatch(every=60, on_drift=print, jsonl=tmp_path / "watch.jsonl")
    callback.on_train_epoch_start(SimpleNamespace(train_dataloader=[DataLoader([1, 2]), DataLoader([3])]), None)  # type: ignore[arg-type]
    assert [(watch.every, watch._on_drift, len(watch._exporters)) for watch in callback.watches] == [(60, print, 1), (60, print, 0)]
    callback.close()
    with pytest.raises(TypeError, match="unexpected keyword argument 'json'"):
        lightning.LightningWatch(json="watch.jsonl")


def test_a_loader_that_lightning_makes_anew_for_an_epoch_is_the_one_that_is_watched(lightning: Any):
    """With ``reload_dataloaders_every_n_epochs=1`` the first epoch alone was seen."""
    callback, loaders = lightning.LightningWatch(every=60), [DataLoader([1, 2]), DataLoader([3])]  # type: ignore[arg-type]
    for loader in loaders:
        callback.on_train_epoch_start(SimpleNamespace(train_dataloader=loader), None)
        assert len(list(loader)) == len(loader)
    assert callback.watches[0].pulse().batches == 3
    callback.close()


def test_figures_go_to_the_trainers_own_loggers(lightning: Any, caplog: pytest.LogCaptureFixture):
    written: list[tuple[int, dict[str, float]]] = []
    logger = SimpleNamespace(log_metrics=lambda figures, step: written.append((step, figures)))
    trainer = SimpleNamespace(train_dataloader=DataLoader([1, 2]), loggers=[logger], global_step=7)  # type: ignore[arg-type]
    callback = lightning.LightningWatch(every=60)
    callback.on_train_epoch_start(trainer, None)
    callback.on_train_batch_end(trainer, None, None, None, 0)
    assert written == [], "there is no window yet"
    callback.watches[0].pulse()
    for _ in range(2):
        callback.on_train_batch_end(trainer, None, None, None, 0)
    assert [step for step, _ in written] == [7], "each window once"
    assert written[0][1]["pipefix/samples_per_second"] == 0.0
    callback.on_train_end(trainer, None)
    assert len(written) == 2, "the last one as well"
    trainer.loggers = [SimpleNamespace(log_metrics=lambda *_, **__: 1 / 0)]
    callback.on_train_epoch_start(trainer, None)
    for _ in range(2):
        callback.watches[0].pulse()
        callback.on_train_batch_end(trainer, None, None, None, 0)
    assert caplog.text.count("the trainer's loggers get no more figures; the training goes on") == 1
    callback.close()


def test_a_training_that_is_begun_again_after_an_error_is_watched(monkeypatch: pytest.MonkeyPatch):
    """As with ``auto_find_batch_size``: no callback is told of the error, and the second training has a loader of its own."""
    monkeypatch.setitem(sys.modules, "transformers", SimpleNamespace(TrainerCallback=object))
    monkeypatch.delitem(sys.modules, "pipefix.watching.transformers", raising=False)
    adapter = importlib.import_module("pipefix.watching.transformers")
    del sys.modules["pipefix.watching.transformers"]  # others import the real one
    callback, loaders = adapter.TransformersWatch(every=60), [DataLoader([1, 2]), DataLoader([3])]  # type: ignore[arg-type]
    for loader in loaders:
        callback.on_train_begin(None, None, None, train_dataloader=loader)
        assert len(list(loader)) == len(loader)
    assert callback.watch.pulse().batches == 3
    callback.on_train_end(None, None, None)
    assert all(type(loader) is DataLoader for loader in loaders)


LIGHTNING = ("lightning", "lightning.pytorch.callbacks", "pytorch_lightning", "pytorch_lightning.callbacks")


@pytest.mark.parametrize("name", ["lightning", "transformers"])
def test_without_the_library_its_callback_says_what_to_install(monkeypatch: pytest.MonkeyPatch, name: str):
    for library in (*LIGHTNING, "transformers"):
        monkeypatch.setitem(sys.modules, library, None)
    monkeypatch.delitem(sys.modules, f"pipefix.watching.{name}", raising=False)
    with pytest.raises(MissingExtra, match="(?i)" + name) as refused:
        importlib.import_module(f"pipefix.watching.{name}")
    assert refused.value.advice.startswith("Install it with: pip install ")
