"""`FastLoader`: torch's `DataLoader`, with quicker ways to bring a batch to the caller.

    loader = FastLoader(dataset, batch_size=64, shuffle=True, num_workers=4)

Arguments, attributes, warnings and errors are those of `DataLoader`, and with the same seed so are the batches, bit for bit.
"""

from __future__ import annotations

from collections import Counter
from typing import Any, TypeVar

from torch.utils.data import DataLoader

from pipefix.loader.arena import Arena
from pipefix.loader.workers import SlotIterator, make_arena

T = TypeVar("T", covariant=True)
ENGINES = ("auto", "processes", "torch")


class FastLoader(DataLoader[T]):
    """All of `DataLoader`'s arguments, and ``engine``: how batches are made.

    ``auto`` takes what is quickest here. ``processes``: worker processes that hand batches over through memory that is used again.
    ``torch``: as `DataLoader` does. Where an engine cannot do what is asked, torch's way is taken; `explain` tells which and why.
    """

    def __init__(self, *args: Any, engine: str = "auto", **kwargs: Any) -> None:
        if engine not in ENGINES:
            raise ValueError(f"engine option should be one of {', '.join(map(repr, ENGINES))}, but got engine={engine!r}")
        # Frameworks build loaders anew from public attributes: each option is kept as it was passed.
        self.engine = engine
        super().__init__(*args, **kwargs)
        self._why = "Nothing has been loaded yet."
        self._handed: Counter[str] = Counter()

    def _get_iterator(self) -> Any:
        made = self._arena()
        self._handed = Counter()
        if isinstance(made, Arena):
            self._why = f"{self.num_workers} worker processes, batches handed over through memory that is used again."
            self.check_worker_number_rationality()
            return SlotIterator(self, made, self._handed)
        self._why = f"As DataLoader does it: {made}."
        return super()._get_iterator()

    def _arena(self) -> Arena | str:
        """What the workers write into, or why there is none."""
        if self.engine == "torch":
            return "engine='torch' asks for it"
        if self.num_workers == 0:
            return "without workers there is nothing to hand over"
        try:
            return make_arena(self)
        except (AttributeError, OSError, ValueError) as error:
            return f"this system has no memory to share without a name ({error})"

    def explain(self) -> str:
        """How batches are made, and why so."""
        slots, others = self._handed["slots"], self._handed["torch"]
        if not slots + others or "through memory" not in self._why:
            return self._why
        rest = (
            f" {others} of {slots + others} batches went torch's way: no slot was free or large enough, or no tensor was in them."
        )
        return self._why + (rest if others else "")
