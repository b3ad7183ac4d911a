"""For Lightning: ``Trainer(callbacks=[WatchCallback(jsonl="watch.jsonl")])``. The training loader is watched from start to end."""

from __future__ import annotations

from typing import Any

from pipefix.vocabulary.errors import MissingExtra
from pipefix.watch.watch import Watch, watch

try:
    from lightning.pytorch.callbacks import Callback
except ImportError:
    try:
        from pytorch_lightning.callbacks import Callback
    except ImportError as error:
        raise MissingExtra(
            "WatchCallback needs Lightning, which cannot be imported.", advice="Install it with: pip install lightning"
        ) from error


class WatchCallback(Callback):  # type: ignore[misc]
    """Takes what `pipefix.watch` takes."""

    def __init__(self, **options: Any) -> None:
        super().__init__()
        self.options = options
        self.watches: list[Watch] = []

    def on_train_start(self, trainer: Any, pl_module: Any) -> None:
        for loader in _loaders(trainer.train_dataloader):
            # Files and ports are one watch's: of several loaders the first has them.
            self.watches.append(watch(loader, **(self.options if not self.watches else {})))

    def on_train_end(self, trainer: Any, pl_module: Any) -> None:
        self.close()

    def on_exception(self, trainer: Any, pl_module: Any, exception: BaseException) -> None:
        self.close()

    def close(self) -> None:
        while self.watches:
            self.watches.pop().close()


def _loaders(found: Any) -> list[Any]:
    """One loader, or a list, dict or CombinedLoader of them."""
    if found is None:
        return []
    flattened = getattr(found, "flattened", None)
    if flattened is not None:
        return list(flattened)
    if isinstance(found, dict):
        return [one for each in found.values() for one in _loaders(each)]
    return [one for each in found for one in _loaders(each)] if isinstance(found, (list, tuple)) else [found]
