"""Installing: by what is loaded, once, and back again."""

from __future__ import annotations

import subprocess
import sys
import types

import pytest

from pipefix.hooks.install import install_all
from pipefix.hooks.patches import Patches
from pipefix.hooks.sample_timer import SampleTimer

LOADED_BY_PYTHON = {"files", "os_calls", "zlib"}


def test_only_what_is_loaded_is_cut():
    code = """
import sys
from pipefix.hooks.patches import Patches
from pipefix.hooks.install import install_all
from pipefix.hooks.sample_timer import SampleTimer
before = set(sys.modules)
print(sorted(install_all(SampleTimer(), Patches())))
heavy = {"torch", "PIL", "cv2", "h5py", "lmdb", "pandas", "pyarrow", "requests", "fsspec", "tokenizers", "torchvision", "imageio"}
print(sorted(heavy & set(sys.modules)))
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    added, loaded = done.stdout.splitlines()
    assert set(eval(added)) >= LOADED_BY_PYTHON
    assert loaded == "[]"


def test_installing_again_adds_nothing_and_undo_takes_all_back():
    import json

    before = json.loads
    timer, patches = SampleTimer(), Patches()
    added = install_all(timer, patches)
    try:
        assert set(added) >= LOADED_BY_PYTHON
        assert install_all(timer, patches) == []
        assert json.loads is not before
    finally:
        patches.undo()
    assert json.loads is before
    assert install_all(timer, patches) == added
    patches.undo()


TAKEN = [("json", "loads"), ("numpy", "load"), ("PIL.Image", "open"), ("cv2", "imread"), ("torchvision.io", "read_file"),
         ("torchvision.io", "decode_image")]  # fmt: skip


def test_what_modules_took_by_name_is_timed_and_put_back(module_with):
    text = "".join(f"from {library} import {name} as {library.replace('.', '_')}_{name}\n" for library, name in TAKEN)
    took = module_with(text)
    before = dict(vars(took))
    patches = Patches()
    install_all(SampleTimer(), patches)
    try:
        assert [name for _, name in TAKEN if any(key.endswith(name) and vars(took)[key] is before[key] for key in before)] == []
    finally:
        patches.undo()
    assert vars(took) == before


@pytest.mark.parametrize("has_stores", [False, True])  # obstore 0.3 has them, and no class with their methods
def test_a_release_without_what_its_hooks_need_is_told(monkeypatch, has_stores):
    obstore = types.ModuleType("obstore")
    obstore.__version__ = "0.3.0"
    monkeypatch.setitem(sys.modules, "obstore", obstore)
    monkeypatch.delitem(sys.modules, "obstore.store", raising=False)
    if has_stores:
        obstore.store = types.ModuleType("obstore.store")
    patches = Patches()
    assert set(install_all(SampleTimer(), patches)) >= LOADED_BY_PYTHON
    assert patches.left_out == {"obstore 0.3.0"}
    patches.undo()
