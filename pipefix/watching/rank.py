"""This process's rank in a distributed job, and the file names and port that its outputs get by it."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import Any

from pipefix.vocabulary import launched


def rank() -> int | None:
    """Among all processes of the job; None outside of one."""
    distributed = sys.modules.get("torch.distributed")
    if distributed is not None and distributed.is_available() and distributed.is_initialized():
        return int(distributed.get_rank())
    return launched.number("RANK", "LOCAL_RANK")


def local_rank() -> int | None:
    """Among those on this machine."""
    local = launched.number("LOCAL_RANK")
    return rank() if local is None else local


def own_file(path: str | Path) -> Path:
    """``watch.jsonl`` for the first rank, ``watch.rank1.jsonl`` for the next. A name that says its rank already stays."""
    file, here = Path(path), rank()
    if not here or re.search(rf"rank[-_. ]?{here}(?!\d)", file.name, re.IGNORECASE):
        return file
    return file.with_name(f"{file.stem}.rank{here}{file.suffix}")


def own_folder(place: Any) -> Any:
    """A folder's part for this rank; a writer of the user's own stays."""
    here = rank()
    return Path(place) / f"rank{here}" if here and isinstance(place, (str, Path)) else place


def own_port(address: int | str) -> int | str:
    """Each process of a machine listens one port further on."""
    host, colon, port = str(address).rpartition(":")
    here = local_rank()
    if not here or not port.isdecimal() or not int(port):
        return address
    return f"{host}{colon}{int(port) + here}"
