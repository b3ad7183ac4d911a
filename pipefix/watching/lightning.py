"""The callback for Lightning, ``LightningWatch(jsonl="watch.jsonl")``: watches the training loader from start to end.

Each window's figures also go to the trainer's own loggers, beside the curves of the training.
"""

from __future__ import annotations

from typing import Any

from pipefix.vocabulary.errors import MissingExtra
from pipefix.watching.exporter import scalars
from pipefix.watching.watch import Watch, checked, training_goes_on, watch
from pipefix.watching.window import Window

try:
    from lightning.pytorch.callbacks import Callback
except ImportError:
    try:
        from pytorch_lightning.callbacks import Callback
    except ImportError as error:
        problem = "LightningWatch needs Lightning, which cannot be imported."
        raise MissingExtra(problem, advice="Install it with: pip install lightning") from error


_OF_ONE = ("jsonl", "prometheus", "textfile", "tensorboard", "baseline")


class LightningWatch(Callback):  # type: ignore[misc,unused-ignore]
    """Takes what `pipefix.watch` takes."""

    def __init__(self, **options: Any) -> None:
        super().__init__()
        self.options = checked(options)
        self.watches: list[Watch] = []
        self._logged: Window | None = None
        """The window that the trainer's loggers were given last."""
        self._logs = True

    def on_fit_start(self, trainer: Any, pl_module: Any) -> None:
        """Before Lightning starts the workers: loaders that were handed to ``fit``."""
        with training_goes_on():
            source = getattr(getattr(trainer, "fit_loop", None), "_data_source", None)
            for loader in _loaders(getattr(source, "instance", None)):
                if hasattr(type(loader), "__iter__"):
                    self._watch(loader)

    def on_train_epoch_start(self, trainer: Any, pl_module: Any) -> None:
        """Lightning has loaders of its own by now, or those that the module made, perhaps anew for this epoch; iterators run."""
        with training_goes_on():
            combined = getattr(getattr(trainer, "fit_loop", None), "_combined_loader", None)
            iterators = list(getattr(getattr(combined, "_iterator", None), "iterators", None) or [])
            for number, loader in enumerate(_loaders(trainer.train_dataloader)):
                if number == len(self.watches):
                    self._watch(loader)
                self.watches[number].turn_to(loader, iterators[number : number + 1])

    def on_train_batch_end(self, trainer: Any, *_: Any) -> None:
        """Loggers belong to the training thread: what the watch's own thread has made meanwhile is handed to them here."""
        if self.watches:
            self._log(trainer, self.watches[0].window)

    def _log(self, trainer: Any, window: Window | None) -> None:
        if window is None or window is self._logged or not self._logs:
            return
        self._logged, self._logs = window, False  # a logger that fails gets no more
        with training_goes_on("the trainer's loggers get no more figures"):
            for logger in trainer.loggers:
                logger.log_metrics(scalars(window), step=trainer.global_step)
            self._logs = True

    def _watch(self, loader: Any) -> None:
        # Files and ports are one watch's, and figures to hold against one loader's: of several loaders the first has them.
        options = {name: value for name, value in self.options.items() if not self.watches or name not in _OF_ONE}
        self.watches.append(watch(loader, **options))

    def on_train_end(self, trainer: Any, pl_module: Any) -> None:
        first = self.watches[0] if self.watches else None
        self.close()
        self._log(trainer, first.window if first is not None else None)

    def on_exception(self, trainer: Any, pl_module: Any, exception: BaseException) -> None:
        self.close()

    def close(self) -> None:
        while self.watches:
            self.watches.pop().close()


def _loaders(held: Any) -> list[Any]:
    """One loader, or a list, dict or CombinedLoader of them."""
    if held is None:
        return []
    flattened = getattr(held, "flattened", None)
    if flattened is not None:
        return list(flattened)
    if isinstance(held, dict):
        return [loader for each in held.values() for loader in _loaders(each)]
    return [loader for each in held for loader in _loaders(each)] if isinstance(held, (list, tuple)) else [held]
