"""The callback for the Trainer of Hugging Face, ``TransformersWatch(jsonl="watch.jsonl")``: watches its training loader."""

from __future__ import annotations

from typing import Any

from pipefix.vocabulary.errors import MissingExtra
from pipefix.watching.watch import Watch, checked, training_goes_on, watch

try:
    from transformers import TrainerCallback
except ImportError as error:
    problem = "TransformersWatch needs transformers, which cannot be imported."
    raise MissingExtra(problem, advice="Install it with: pip install transformers accelerate") from error


class TransformersWatch(TrainerCallback):  # type: ignore[misc,unused-ignore]
    """Takes what `pipefix.watch` takes. The training loader is watched from start to end."""

    def __init__(self, **options: Any) -> None:
        self.options = checked(options)
        self.watch: Watch | None = None

    def on_train_begin(self, args: Any, state: Any, control: Any, train_dataloader: Any = None, **_: Any) -> None:
        if train_dataloader is None:
            return
        with training_goes_on():
            if self.watch is None:
                self.watch = watch(train_dataloader, **self.options)
            else:  # the training before it ended by an error (auto_find_batch_size), of which no callback is told
                self.watch.turn_to(train_dataloader)

    def on_train_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        if self.watch is not None:
            self.watch.close()
            self.watch = None
