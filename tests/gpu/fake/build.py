"""The fake device's libraries, compiled into a folder; or why they cannot be."""

from __future__ import annotations

import shutil
import subprocess
from importlib.util import find_spec
from pathlib import Path

import torch

HERE = Path(__file__).parent
RUNTIME = ("timeline", "memory", "runtime")
CUDA = "13."
"""The runtime that the sources are written against: others have other names for some calls."""


def why_not() -> str | None:
    if torch.version.cuda is None:
        return "torch has no CUDA build here"
    if not torch.version.cuda.startswith(CUDA):
        return f"the fake device is written against CUDA {CUDA}x, and torch is built for {torch.version.cuda}"
    if shutil.which("g++") is None or shutil.which("gcc") is None:
        return "there is no compiler here (gcc and g++)"
    if _headers() is None:
        return "the headers of the CUDA runtime are not installed"
    return None


def _headers() -> Path | None:
    """They come with triton, and with NVIDIA's packages."""
    for package, folders in (("triton", "backends/nvidia/include"), ("nvidia", "*/include")):
        spec = find_spec(package)
        for root in spec.submodule_search_locations or () if spec is not None else ():
            for folder in Path(root).glob(folders):
                if (folder / "cuda_runtime_api.h").exists():
                    return folder
    return None


def build(folder: Path) -> None:
    """``libfakecudart.so``, ``libcuda.so.1`` and ``libnvidia-ml.so.1``."""
    headers = _headers()
    assert headers is not None
    cpp = ["g++", "-std=c++17", "-fPIC", "-I", str(headers)]
    commands = [[*cpp, "-c", str(HERE / f"{name}.cpp"), "-o", str(folder / f"{name}.o")] for name in RUNTIME]
    commands += [
        ["gcc", "-fPIC", "-shared", str(HERE / source), "-o", str(folder / library)]
        for source, library in (("driver.c", "libcuda.so.1"), ("nvml.c", "libnvidia-ml.so.1"))
    ]
    _all(commands)
    _all([[*cpp, "-shared", *(str(folder / f"{name}.o") for name in RUNTIME), "-o", str(folder / "libfakecudart.so")]])


def _all(commands: list[list[str]]) -> None:
    """Run beside each other."""
    begun = [subprocess.Popen(command, stderr=subprocess.PIPE, text=True) for command in commands]
    for process in begun:
        _, said = process.communicate()
        assert process.returncode == 0, said
