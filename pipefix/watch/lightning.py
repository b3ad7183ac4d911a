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


class WatchCallback(Callback):  # type: ignore[misc,unused-ignore]
    """Takes what `pipefix.watch` takes."""

    def __init__(self, **options: Any) -> None:
        super().__init__()
        self.options = options
        self.watches: list[Watch] = []

    def on_fit_start(self, trainer: Any, pl_module: Any) -> None:
        """Before Lightning starts the workers: loaders that were handed to ``fit``."""
        source = getattr(getattr(trainer, "fit_loop", None), "_data_source", None)
        for loader in _loaders(getattr(source, "instance", None)):
            if hasattr(type(loader), "__iter__"):
                self._watch(loader)

    def on_train_start(self, trainer: Any, pl_module: Any) -> None:
        """Lightning has loaders of its own by now, or those that the module made; the first epoch's iterators run."""
        combined = getattr(getattr(trainer, "fit_loop", None), "_combined_loader", None)
        iterators = list(getattr(getattr(combined, "_iterator", None), "iterators", None) or [])
        for number, loader in enumerate(_loaders(trainer.train_dataloader)):
            if number == len(self.watches):
                self._watch(loader)
            self.watches[number].turn_to(loader, iterators[number : number + 1])

    def _watch(self, loader: Any) -> None:
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
