"""Build the native kernel where it belongs, or say what is missing: ``python -m pipefix.kernels.build``.

Standard library only: `setup.py` runs this file before anything is installed. One recipe serves an install from source, a checkout
and a wheel. Environment: CC (the compiler), PIPEFIX_JPEG (a prefix with include/ and lib/), PIPEFIX_JPEG_STATIC=1 (link libjpeg
in), PIPEFIX_NATIVE=0 (do without).
"""

from __future__ import annotations

import os
import platform
import shlex
import shutil
import subprocess
import sys
import sysconfig
import tempfile
from pathlib import Path

HERE = Path(__file__).resolve().parent
SOURCES = HERE / "csrc"
PRODUCT = HERE / "_native.abi3.so"
FLAGS = ["-O3", "-std=c11", "-fPIC", "-fvisibility=hidden", "-ffp-contract=off", "-fno-math-errno", "-DNDEBUG"]
"""No -march: what the processor has is found out when the program runs. No contraction: every machine rounds alike."""

COMPILER = "install a C compiler (Debian, Ubuntu: apt install gcc)"
HEADERS = "install the headers of libjpeg-turbo (Debian, Ubuntu: apt install libjpeg62-turbo-dev or libjpeg-turbo8-dev; \
Fedora: dnf install libjpeg-turbo-devel; macOS: brew install jpeg-turbo)"
PYTHON = "install Python's headers (Debian, Ubuntu: apt install python3-dev)"
AGAIN = "then run: python -m pipefix.kernels.build"


class CannotBuild(Exception):
    """``args``: what is missing, and what to type."""


def build(product: Path = PRODUCT, extra: tuple[str, ...] = ()) -> Path:
    """Compile into ``product``, which is there whole or not at all."""
    compiler, includes = require()
    product.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=product.parent, prefix=".build-") as place:
        draft = Path(place) / product.name
        shared = ["-bundle", "-undefined", "dynamic_lookup"] if sys.platform == "darwin" else ["-shared"]
        sources = [str(path) for path in sorted(SOURCES.glob("*.c"))]
        command = [*compiler, *shared, *FLAGS, *extra, *includes, *sources, "-o", str(draft), *where_jpeg_is()[1], "-lm"]
        done = run(command)
        if done.returncode:
            lines = [line.strip() for line in done.stderr.splitlines() if line.strip()] or [f"it ended with {done.returncode}"]
            complaint = next((line for line in lines if "error" in line), lines[-1])
            raise CannotBuild(f"The compiler refused: {complaint}", f"Send this with the name of your system; {AGAIN}")
        draft.replace(product)
    return product


def find_compiler() -> list[str]:
    compiler = os.environ.get("CC")
    for command in [shlex.split(compiler)] if compiler else [["cc"], ["gcc"], ["clang"]]:
        if command and shutil.which(command[0]):
            return command
    missing = f"CC={compiler} is not there." if compiler else "There is no C compiler."
    raise CannotBuild(missing, f"To have the native kernel, {COMPILER}, {AGAIN}")


def where_jpeg_is() -> tuple[list[str], list[str]]:
    """Flags for the headers, and for the library."""
    prefix = os.environ.get("PIPEFIX_JPEG")
    if not prefix and sys.platform == "darwin":
        prefix = next((p for p in ("/opt/homebrew/opt/jpeg-turbo", "/usr/local/opt/jpeg-turbo") if Path(p).exists()), None)
    includes = [f"-I{prefix}/include"] if prefix else []
    folders = [f"-L{prefix}/{lib}" for lib in ("lib", "lib64") if prefix and Path(prefix, lib).exists()]
    if os.environ.get("PIPEFIX_JPEG_STATIC") == "1":
        # Its own copy, invisible to others: a process may hold several libraries of that name.
        return includes, [*folders, "-Wl,-Bstatic", "-ljpeg", "-Wl,-Bdynamic", "-Wl,--exclude-libs,ALL"]
    return includes, [*folders, "-ljpeg"]


def why_not_loaded() -> tuple[str, str] | None:
    """Why the kernel cannot be imported, and what to type; None: it can. Looks, builds nothing, and does not load PyTorch."""
    try:
        import pipefix.kernels._native  # noqa: F401
    except ImportError as error:
        if PRODUCT.exists():
            return f"The native kernel is there and cannot be loaded: {error}.", "Build it again: python -m pipefix.kernels.build"
    else:
        return None
    lacking = missing()
    if lacking:
        return f"The native kernel has not been built: {lacking[0]}", lacking[1]
    return "The native kernel has not been built, though all that it takes is there.", "Build it: python -m pipefix.kernels.build"


def missing() -> tuple[str, str] | None:
    """What keeps it from being built, and what to type. None: nothing."""
    try:
        require()
    except CannotBuild as lacking:
        why, advice = lacking.args
        return why, advice
    return None


def require() -> tuple[list[str], list[str]]:
    """The compiler, and flags for the headers. Raises `CannotBuild` unless both sets of headers are there, and libjpeg is
    libjpeg-turbo, which declares what decodes a region."""
    if os.environ.get("PIPEFIX_NATIVE") == "0":
        raise CannotBuild("PIPEFIX_NATIVE=0 asks to do without it.", f"Unset PIPEFIX_NATIVE, {AGAIN}")
    if os.name != "posix":
        raise CannotBuild(f"The native kernel is for Linux and macOS; this is {platform.system()}.", "The twin is used instead.")
    compiler = find_compiler()
    includes = [*where_jpeg_is()[0], f"-I{sysconfig.get_path('include')}"]
    for source, name, advice in (
        ("module.c", f"Python.h of Python {platform.python_version()}", PYTHON),
        ("jpeg.c", "jpeglib.h of libjpeg-turbo", HEADERS),
    ):
        only = ["-std=c11", "-fsyntax-only", "-Werror=implicit-function-declaration"]
        if run([*compiler, *includes, *only, str(SOURCES / source)]).returncode:
            raise CannotBuild(f"{name} cannot be compiled with.", f"To have the native kernel, {advice}, {AGAIN}")
    return compiler, includes


def run(command: list[str]) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command, check=False, capture_output=True, text=True, stdin=subprocess.DEVNULL)


def main(product: Path = PRODUCT) -> int:
    try:
        print(f"The native kernel is in {build(product)}")
    except CannotBuild as lacking:
        why, advice = lacking.args
        told = f"{why}\n  {advice}\n  pipefix works without it, more slowly."
    except OSError as error:
        told = f"{error}.\n  Is {HERE} yours to write to?"
    else:
        return 0
    print(f"No native kernel: {told}", file=sys.stderr)
    return 1


if __name__ == "__main__":
    sys.exit(main())
