"""Installs every hook for what this process has imported: the rows of `simple_calls`, and one module for each larger library.

Such a module defines

    LIBRARY = "PIL"                      # the import that must have happened; "" for the standard library
    def install(timer, patches): ...     # @hook(timer, patches, owner, "name") before what is called in a function's place
    def stand_in(timer, value): ...      # optional: wrap an object that was made before the hooks came

Where it reads whole bytes of files, `caches.replay.BYTE_READERS` can answer it from a cache.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Collection
from types import ModuleType
from typing import Any

from pipefix.hooks import simple_calls
from pipefix.hooks.patches import Patches
from pipefix.hooks.sample_timer import SampleTimer

MODULES = ("files", "os_calls", "mmap", "numpy", "pil", "cv2", "torchvision_io", "h5py", "lmdb", "urllib", "urllib3", "fsspec",
           "obstore", "s3torchconnector")  # fmt: skip


def stand_in(timer: SampleTimer, value: Any) -> Any:
    """What behaves as ``value``, which was made before the hooks were installed, but is timed; None where nothing does."""
    wraps = [getattr(sys.modules.get(f"{__package__}.{name}"), "stand_in", None) for name in MODULES]
    wrapped = (wrap(timer, value) for wrap in wraps if wrap is not None)
    return next((each for each in wrapped if each is not None), None)


def loaded_libraries() -> list[str]:
    """Modules of libraries with a hook that this process has imported by now."""
    known = {_module(name).LIBRARY for name in MODULES} | {row.module for row in simple_calls.TABLE}
    return sorted(known & sys.modules.keys())


def install_all(timer: SampleTimer, patches: Patches, only: Collection[str] | None = None) -> list[str]:
    """Install the hooks of every library imported by now, or these modules ``only``; call again when more have been imported.

    Returns what was added.
    """
    added = []
    for name in MODULES if only is None else only:
        if name in patches.installed:
            continue
        module = _module(name)
        if not module.LIBRARY or module.LIBRARY in sys.modules:
            patches.installed.add(name)
            try:
                module.install(timer, patches)
            except (AttributeError, ImportError, LookupError):  # a release without what its hooks need
                library = module.LIBRARY.partition(".")[0]
                patches.left_out.add(f"{library} {getattr(sys.modules.get(library), '__version__', '')}".strip())
            added.append(name)
    if only is None:
        added += simple_calls.install(timer, patches)
    if added:
        patches.follow_names()
    return added


def _module(name: str) -> ModuleType:
    return importlib.import_module(f"{__package__}.{name}")
