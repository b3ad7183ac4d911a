"""The blueprint of a cache: all that its parts are made from, whichever process or machine makes them.

It is written before the first part, as ``plan.json``, and read again by the command that goes on after an interruption.
"""

from __future__ import annotations

from pathlib import Path

from pipefix.caches.fingerprint import changed
from pipefix.caches.manifest import LARGEST, Conversion, unseal
from pipefix.vocabulary.files import read_regular

_NO_WORK = ("boot", "digest", "pipefix", "target", "part_samples", "classes", "source", "recipe")
"""Fields that make no other records; the last two are compared by themselves."""


class Blueprint(Conversion, frozen=True, kw_only=True):
    format: str = "pipefix.cache-plan/2"
    samples: int | None = None
    """None for a stream, whose end is not known beforehand."""
    part_samples: int = 1
    starts: list[int] = []
    """Of a forecast, where the parts begin that are made; otherwise they follow one another."""
    seeded: bool = False
    """Samples draw random numbers: each then starts from a seed of its own."""
    stop_at: int | None = None
    """After how many decodes a sample has read all that it reads; None runs it to its end."""
    by_path: bool = False
    """The decode that it stops at is handed a path, and would read that file."""
    maps: bool = True
    """Samples map files of their own into memory, which are kept whole."""
    boot: str = ""
    """Which start of the machine this was begun in: parts from before it may not have reached the disk."""
    digest: str = ""

    @property
    def parts(self) -> int | None:
        """How many there are; None for a stream."""
        if self.starts:
            return len(self.starts)
        return None if self.samples is None else -(-self.samples // self.part_samples)

    def range(self, number: int) -> tuple[int, int]:
        """The samples of a part; of a stream, which may end within it, as many as there can be."""
        start = self.starts[number] if self.starts else number * self.part_samples
        stop = start + self.part_samples
        return start, stop if self.samples is None else min(stop, self.samples)

    def differing(self, earlier: Blueprint) -> list[str]:
        """What of the two is not the same work, by its name in the dataset or in the blueprint; nothing, where parts made for one
        serve the other."""
        names = [name for name in self.__struct_fields__ if name not in _NO_WORK and getattr(self, name) != getattr(earlier, name)]
        names += ["source"] if self.source.root != earlier.source.root else []
        names += [] if self.recipe.is_same_work(earlier.recipe) else ["recipe"]
        return changed(self.source.attributes, earlier.source.attributes) + names


def read(path: Path) -> Blueprint:
    blueprint: Blueprint = unseal(read_regular(path, LARGEST), Blueprint, path)
    return blueprint


def boot() -> str:
    """Differs after every start of the machine, where the system tells."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
    except OSError:
        return ""
