"""For the Trainer of Hugging Face: ``Trainer(..., callbacks=[WatchCallback(jsonl="watch.jsonl")])``."""

from __future__ import annotations

from typing import Any

from pipefix.vocabulary.errors import MissingExtra
from pipefix.watch.watch import Watch, watch

try:
    from transformers import TrainerCallback
except ImportError as error:
    raise MissingExtra(
        "WatchCallback needs transformers, which cannot be imported.", advice="Install it with: pip install transformers accelerate"
    ) from error


class WatchCallback(TrainerCallback):  # type: ignore[misc,unused-ignore]
    """Takes what `pipefix.watch` takes. The training loader is watched from start to end."""

    def __init__(self, **options: Any) -> None:
        self.options = options
        self.watch: Watch | None = None

    def on_train_begin(self, args: Any, state: Any, control: Any, train_dataloader: Any = None, **_: Any) -> None:
        if train_dataloader is not None and self.watch is None:
            self.watch = watch(train_dataloader, **self.options)

    def on_train_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        if self.watch is not None:
            self.watch.close()
            self.watch = None
