"""The callback for the Trainer of Hugging Face, ``TransformersWatch(jsonl="watch.jsonl")``: watches its training loader."""

from __future__ import annotations

import logging
from typing import Any

from pipefix.vocabulary.errors import BadUsage, MissingExtra
from pipefix.watching.watch import Watch, watch

try:
    from transformers import TrainerCallback
except ImportError as error:
    raise MissingExtra(
        "TransformersWatch needs transformers, which cannot be imported.",
        advice="Install it with: pip install transformers accelerate",
    ) from error

log = logging.getLogger("pipefix.watch")


class TransformersWatch(TrainerCallback):  # type: ignore[misc,unused-ignore]
    """Takes what `pipefix.watch` takes. The training loader is watched from start to end."""

    def __init__(self, **options: Any) -> None:
        self.options = options
        self.watch: Watch | None = None

    def on_train_begin(self, args: Any, state: Any, control: Any, train_dataloader: Any = None, **_: Any) -> None:
        if train_dataloader is None or self.watch is not None:
            return
        try:
            self.watch = watch(train_dataloader, **self.options)
        except BadUsage:
            raise  # an option that makes no sense is told at the start
        except Exception:
            log.exception("pipefix.watch: this loader could not be watched; the training goes on.")

    def on_train_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        if self.watch is not None:
            self.watch.close()
            self.watch = None
