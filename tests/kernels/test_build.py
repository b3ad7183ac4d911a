"""The native kernel is optional: it builds where a compiler and headers are, and what is missing is said in a sentence."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from pipefix.kernels import build
from pipefix.kernels.kernel import best, native
from pipefix.kernels.twin import TwinKernel


def test_where_it_can_be_built_it_is_there() -> None:
    """A machine with a compiler and headers tests the native kernel too."""
    lacking = build.missing()
    if lacking:
        pytest.skip(f"{lacking[0]} {lacking[1]}")
    assert native() is not None, f"run: {sys.executable} -m pipefix.kernels.build"


def run(**environment: str) -> subprocess.CompletedProcess[str]:
    """The command, on a package without the product: nothing of this checkout is touched."""
    code = "import sys; from pathlib import Path; from pipefix.kernels import build; sys.exit(build.main(Path(sys.argv[1])))"
    return subprocess.run(
        [sys.executable, "-c", code, environment.pop("place")],
        env={**os.environ, **environment}, capture_output=True, text=True, check=False, cwd=Path(__file__).parents[2],
    )  # fmt: skip


def test_without_a_compiler(tmp_path: Path) -> None:
    done = run(CC="no-such-compiler", place=str(tmp_path / "x.so"))
    assert done.returncode == 1
    assert done.stderr == (
        "No native kernel: CC=no-such-compiler is not there.\n"
        "  To have the native kernel, install a C compiler (Debian, Ubuntu: apt install gcc), "
        "then run: python -m pipefix.kernels.build\n"
        "  pipefix works without it, more slowly.\n"
    )


def test_without_headers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A compiler that finds nothing."""
    compiler = tmp_path / "cc"
    compiler.write_text("#!/bin/sh\necho 'fatal error: jpeglib.h: No such file' >&2\nexit 1\n")
    compiler.chmod(0o755)
    done = run(CC=str(compiler), place=str(tmp_path / "x.so"))
    assert done.returncode == 1
    assert "cannot be compiled with" in done.stderr
    assert "apt install" in done.stderr


def test_it_can_be_declined(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PIPEFIX_NATIVE", "0")
    assert build.missing() == (
        "PIPEFIX_NATIVE=0 asks to do without it.",
        "Unset PIPEFIX_NATIVE, then run: python -m pipefix.kernels.build",
    )


def test_the_twin_is_there_without_native_code(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pipefix.kernels.native", None)
    monkeypatch.setattr(subprocess, "run", None)  # a loader chooses at each epoch: no compiler is asked why
    assert native() is None and isinstance(best(), TwinKernel)


@pytest.mark.parametrize(
    ("there", "why", "advice"),
    [
        (True, "The native kernel is there and cannot be loaded: ", "Build it again: python -m pipefix.kernels.build"),
        (False, "The native kernel has not been built: PIPEFIX_NATIVE=0 asks", "Unset PIPEFIX_NATIVE, then run: "),
    ],
)
def test_why_it_is_not_there_is_told(there: bool, why: str, advice: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    product = tmp_path / "_native.abi3.so"
    if there:
        product.write_bytes(b"not a library")
    monkeypatch.setattr(build, "PRODUCT", product)
    monkeypatch.setitem(sys.modules, "pipefix.kernels._native", None)
    monkeypatch.setenv("PIPEFIX_NATIVE", "0")
    told = build.why_not_loaded()
    assert told is not None and told[0].startswith(why) and told[1].startswith(advice)


def test_only_the_stable_abi_is_asked_for() -> None:
    """One file serves every Python from 3.10 on."""
    if native() is None:
        pytest.skip("there is no native kernel here")
    from pipefix.kernels import _native

    assert _native.__file__ is not None
    assert _native.__file__.endswith(".abi3.so")
    assert "#define Py_LIMITED_API 0x030A0000" in (build.SOURCES / "module.c").read_text(encoding="utf-8")
