"""What a part is made from: a part is a pure function of its number and of this, whichever process or machine makes it.

It is written before the first part, as ``plan.json``, and read again by the command that goes on after an interruption.
"""

from __future__ import annotations

from pathlib import Path

import msgspec

from pipefix.caches.fingerprint import changed
from pipefix.caches.manifest import LARGEST, Conversion, unseal
from pipefix.vocabulary.files import read_regular

_NO_WORK = ("boot", "digest", "pipefix", "target", "part_samples", "attributes", "volatile", "classes")


class Blueprint(Conversion, frozen=True, kw_only=True):
    format: str = "pipefix.cache-plan/1"
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
    root: str | None = None
    attributes: dict[str, str] = {}
    """Digests of the dataset's code and of what it holds, its long lists left out."""
    volatile: list[str] = []
    """Long lists that change while samples are made."""
    boot: str = ""
    """Which start of the machine this was begun in: parts from before it may not have reached the disk."""
    digest: str = ""

    @property
    def parts(self) -> int | None:
        return None if self.samples is None else -(-self.samples // self.part_samples)

    def range(self, number: int) -> tuple[int, int | None]:
        """The samples of a part; no end where that is not known."""
        start = self.starts[number] if self.starts else number * self.part_samples
        return start, start + self.part_samples if self.samples is None else min(start + self.part_samples, self.samples)

    def same_work(self, other: Blueprint) -> bool:
        """Whether parts made for one serve the other."""
        return not self.differing(other)

    def differing(self, other: Blueprint) -> list[str]:
        """What of the two is not the same work: by its name in the dataset, or in the blueprint."""
        names = [name for name in self.__struct_fields__ if name not in _NO_WORK and self._work(name) != other._work(name)]
        return changed(self.attributes, other.attributes) + names

    def _work(self, name: str) -> object:
        """A field; of the recipe, without how many damaged samples end it: parts made until then serve another limit too."""
        value = getattr(self, name)
        return msgspec.structs.replace(value, max_bad=0.0) if name == "recipe" else value


def read(path: Path) -> Blueprint:
    found: Blueprint = unseal(read_regular(path, LARGEST), Blueprint, path)
    return found


def boot() -> str:
    """Differs after every start of the machine, where the system tells."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
    except OSError:
        return ""
