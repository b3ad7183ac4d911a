"""The trainers' callbacks: the loader that trains is watched while it trains."""

from __future__ import annotations

import importlib
import json
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
from torch.utils.data import DataLoader

from pipefix.vocabulary.errors import MissingExtra
from tests.watching.pipelines import Files


def windows(path: Path) -> list[dict]:  # type: ignore[type-arg]
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_accelerates_loaders_are_watched_inside(tmp_path: Path):
    """They iterate a loader that they hold."""
    from pipefix.watching.watch import Watch

    class Shard:
        def __init__(self, loader: DataLoader) -> None:  # type: ignore[type-arg]
            self.base_dataloader = loader

        def __iter__(self):
            yield from self.base_dataloader

        def __len__(self) -> int:
            return len(self.base_dataloader)

    shard = Shard(DataLoader(Files(tmp_path, 16), batch_size=4))
    with Watch(shard).start(thread=False) as watched:
        assert len(list(shard)) == 4
        assert watched.pulse().batches == 4
        assert len(list(watched)) == 4
        assert watched.pulse().batches == 4
    assert type(shard.base_dataloader) is DataLoader


def test_lightnings_collections_of_loaders(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture):
    monkeypatch.setitem(sys.modules, "lightning", SimpleNamespace())
    monkeypatch.setitem(sys.modules, "lightning.pytorch", SimpleNamespace())
    monkeypatch.setitem(sys.modules, "lightning.pytorch.callbacks", SimpleNamespace(Callback=object))
    monkeypatch.delitem(sys.modules, "pipefix.watching.lightning", raising=False)
    module = importlib.import_module("pipefix.watching.lightning")
    loaders = [DataLoader([1, 2]), DataLoader([3])]  # type: ignore[arg-type]
    callback = module.LightningWatch(every=60)
    callback.on_train_start(SimpleNamespace(train_dataloader={"a": loaders}), None)
    assert module._loaders(SimpleNamespace(flattened=loaders)) == loaders
    assert [watch.loader for watch in callback.watches] == loaders
    callback.on_exception(None, None, KeyboardInterrupt())
    monkeypatch.setattr(module, "watch", lambda *_, **__: 1 / 0)
    callback.on_fit_start(SimpleNamespace(fit_loop=SimpleNamespace(_data_source=SimpleNamespace(instance=loaders))), None)
    callback.on_train_start(SimpleNamespace(train_dataloader=loaders), None)
    assert "could not be watched; the training goes on" in caplog.text
    assert callback.watches == []
    monkeypatch.delitem(sys.modules, "pipefix.watching.lightning")


LIGHTNING = ("lightning", "lightning.pytorch.callbacks", "pytorch_lightning", "pytorch_lightning.callbacks")


@pytest.mark.parametrize("name", ["lightning", "transformers"])
def test_without_the_library_its_callback_says_what_to_install(monkeypatch: pytest.MonkeyPatch, name: str):
    for library in (*LIGHTNING, "transformers"):
        monkeypatch.setitem(sys.modules, library, None)
    monkeypatch.delitem(sys.modules, f"pipefix.watching.{name}", raising=False)
    with pytest.raises(MissingExtra, match="(?i)" + name) as refused:
        importlib.import_module(f"pipefix.watching.{name}")
    assert refused.value.advice.startswith("Install it with: pip install ")
