"""An error of a sample on its way from a worker: also one whose class cannot be sent.

Torch sends an error's class, and its text. A class that is made at run time (as botocore makes its own) cannot be pickled: the
queue's thread in the worker drops the message, and the training process would wait for that batch for ever.
"""

from __future__ import annotations

import pickle
from typing import Any, NoReturn

from pipefix.hooks import torch_internals
from pipefix.hooks.torch_internals import ErrorInWorker


class UnpicklableError(RuntimeError):
    """Stands for an error whose class cannot be sent from process to process; its text says which, and where it was raised."""


class SentError(ErrorInWorker):
    """Torch's, for errors of any class."""

    def __init__(self, exc_info: Any = None, where: str = "in background") -> None:
        super().__init__(exc_info, where)  # type: ignore[no-untyped-call]
        self.unsent: str | None = None
        """The name of a class that cannot be sent."""
        try:
            pickle.dumps(self.exc_type)
        except Exception:  # noqa: BLE001 - a metaclass of the user's may raise anything
            self.unsent = f"{self.exc_type.__module__}.{self.exc_type.__qualname__}"
            self.exc_type = UnpicklableError

    def reraise(self) -> NoReturn:
        if self.unsent is None:
            super().reraise()  # type: ignore[no-untyped-call]
        raise UnpicklableError(
            f"Caught {self.unsent} {self.where}. Its class cannot be pickled, so this stands for it.\nOriginal {self.exc_msg}"
        )


def send_any_error() -> None:
    """In a worker: errors are sent as `SentError` from now on."""
    torch_internals.worker_module.ExceptionWrapper = SentError
