"""The notebook of the examples runs from end to end, with few samples."""

from __future__ import annotations

import json
import shutil
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


def test_the_notebook(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    examples = tmp_path / "examples"
    shutil.copytree(ROOT / "examples", examples, ignore=shutil.ignore_patterns("data", "__pycache__"))
    monkeypatch.setenv("EXAMPLE_SAMPLES", "64")
    monkeypatch.setenv("EXAMPLE_BUDGET", "1s")
    monkeypatch.chdir(examples)
    monkeypatch.delitem(sys.modules, "tabular", raising=False)
    monkeypatch.syspath_prepend(str(examples))
    names: dict[str, object] = {"__name__": "__main__"}
    for cell in json.loads((examples / "notebook.ipynb").read_text(encoding="utf-8"))["cells"]:
        if cell["cell_type"] == "code":
            exec("".join(cell["source"]), names)
    told = capsys.readouterr().out
    assert "VERDICT" in told
    assert "samples/s" in told
    assert (examples / "before.json").exists()
