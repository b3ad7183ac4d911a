"""Whether a module is the user's own code: neither a library's, nor ours, nor built in."""

from __future__ import annotations

import sys
import sysconfig
from functools import lru_cache
from pathlib import PurePath
from typing import Any

_LIBRARY_FOLDERS = tuple({sysconfig.get_path(key) for key in ("stdlib", "platstdlib", "purelib", "platlib")})
_OURS = ("pipefix", "_pipefix_observing")
"""The second is what `pipefix run` loads into the program."""
_INSTALLED = {"site-packages", "dist-packages"}


def is_users(name: Any, file: str | None = None) -> bool:
    """Whether the module of this name, whose code lies in ``file`` (by default the module's), is the user's own."""
    if not isinstance(name, str) or name.partition(".")[0] in _OURS:
        return False
    if name.partition(".")[0] in _installed_of_users:
        return True
    file = file or getattr(sys.modules.get(name), "__file__", None)
    return isinstance(file, str) and not _is_librarys(file)


def count_as_users(package: str) -> None:
    """From now on what this package holds is the user's own, though it is installed: the target named it."""
    if package and package not in _WITH_HOOKS:
        _installed_of_users.add(package)


_installed_of_users = {"__main__"}
_WITH_HOOKS = {"torch", "torchvision", "torchaudio", "datasets", "PIL", "cv2", "numpy"}
"""Libraries whose calls are known by themselves."""


@lru_cache(maxsize=1024)
def _is_librarys(file: str) -> bool:
    return file.startswith(_LIBRARY_FOLDERS) or not _INSTALLED.isdisjoint(PurePath(file).parts)
