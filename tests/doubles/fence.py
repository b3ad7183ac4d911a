"""A fence for tests in which the code under test is asked to remove what it must not.

Such a test is only worth something if it may fail, and its failing must not cost the machine a folder: what would be removed,
renamed or emptied outside the fence is refused with an error before it happens, and the test fails.
"""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

# What an event of sys.addaudithook carries: which arguments are paths, and where each one's folder descriptor stands.
PATHS = {
    "os.remove": ((0, 1),),
    "os.rmdir": ((0, 1),),
    "os.rename": ((0, 2), (1, 3)),
    "os.truncate": ((0, None),),
    "shutil.rmtree": ((0, 1),),
}

PYTHONS_OWN = ("__pycache__", ".hypothesis", "pymp-")
"""How folders begin that Python, its multiprocessing and hypothesis write to by themselves, wherever they lie."""

_allowed: list[Path] = []
_refused: list[str] = []
_listening = False


def _place(path: Any, descriptor: Any) -> Path:
    """Where a path leads, links in its folders followed; a link as its last part is what would be removed itself."""
    name = os.fsdecode(path)
    base = os.readlink(f"/proc/self/fd/{descriptor}") if isinstance(descriptor, int) and descriptor >= 0 else os.getcwd()
    folder, last = os.path.split(os.path.join(base, name).rstrip("/") or "/")
    whole = os.path.realpath(folder) if last in ("", ".", "..") else os.path.join(os.path.realpath(folder), last)
    return Path(os.path.realpath(os.path.join(folder, last)) if last in (".", "..") else whole)


def _listen(event: str, arguments: tuple[Any, ...]) -> None:
    if not _allowed or event not in PATHS:
        return
    for number, descriptor in PATHS[event]:
        path = arguments[number]
        if isinstance(path, int):
            continue  # an open file, which whoever opened it answers for
        place = _place(path, arguments[descriptor] if descriptor is not None and descriptor < len(arguments) else None)
        if not any(part.startswith(PYTHONS_OWN) for part in place.parts) and not any(
            place.is_relative_to(root) and place != root for root in _allowed
        ):
            _refused.append(f"{event} of {place}")
            raise PermissionError(f"{event} of {place}: outside the fence of this test")


@contextlib.contextmanager
def fenced(*roots: Path) -> Iterator[None]:
    """Removes nothing outside ``roots``, nor a root itself.

    Raises:
        AssertionError: Something outside was about to be removed, whether or not the code under test caught the error.
    """
    global _listening
    if not _listening:
        sys.addaudithook(_listen)
        _listening = True
    _allowed[:] = [root.resolve() for root in roots]
    _refused.clear()
    try:
        yield
    finally:
        _allowed.clear()
    assert not _refused, f"the code under test was about to remove what is not its own: {_refused}"
