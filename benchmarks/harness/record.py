"""What a benchmark measured so far, kept between its portions, and the results of whole runs."""

from __future__ import annotations

import hashlib
import json
import os
import tempfile
import time
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
RESULTS = ROOT / "benchmarks" / "results"
WORK = Path(os.environ.get("PIPEFIX_BENCH", str(Path(tempfile.gettempdir()) / "pipefix-bench")))
"""Where pictures are drawn and portions are kept; kept itself, so that pictures are drawn once."""


class Record:
    """The figures of a run that may be done in portions.

    A case fills `body` and calls `save` as often as it could be left; it asks `over` before it begins something more.
    """

    def __init__(self, path: Path, *, portion_s: float = 0.0, published: Mapping[str, Any] | None = None) -> None:
        self.path = path
        self.portion_s = portion_s
        self.published = dict(published or {})
        """What the last whole run found, for cases that renew only a part."""
        self._began = time.monotonic()
        kept = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
        self.body: dict[str, Any] = kept.get("body", {})
        self._spent = float(kept.get("spent_s", 0.0))

    @property
    def spent_s(self) -> float:
        """Seconds of all portions together."""
        return self._spent + time.monotonic() - self._began

    def over(self) -> bool:
        """Whether this portion's time is up."""
        return bool(self.portion_s) and time.monotonic() - self._began > self.portion_s

    def save(self) -> None:
        write_json(self.path, {"spent_s": self.spent_s, "body": self.body})

    def forget(self) -> None:
        self.path.unlink(missing_ok=True)
        self.body = {}
        self._spent = 0.0


def record_path(name: str, options: Mapping[str, Any], code: Iterable[str] = ()) -> Path:
    """Where portions are kept: apart for other options, and for other code of the rooms that they speak about.

    Args:
        name: The case.
        options: Its options as given; ``only`` restricts a portion and makes it no other run.
        code: Rooms of the package; portions measured before one of their files changed are not gone on with.
    """
    digest = hashlib.sha256()
    digest.update(json.dumps({key: value for key, value in sorted(options.items()) if key != "only"}, default=str).encode())
    for room in code:
        for path in sorted((ROOT / "pipefix" / room).rglob("*.py")):
            digest.update(path.name.encode() + path.read_bytes())
    return WORK / "portions" / f"{name}-{digest.hexdigest()[:12]}.json"


def result(name: str, folder: Path = RESULTS) -> dict[str, Any] | None:
    """What the last whole run of a case wrote; None where there was none."""
    path = folder / f"{name}.json"
    if not path.exists():
        return None
    found: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return found


def write_json(path: Path, value: Any) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    draft = path.with_name(f"{path.name}.draft")
    draft.write_text(json.dumps(value, indent=1, default=str) + "\n", encoding="utf-8")
    draft.replace(path)
