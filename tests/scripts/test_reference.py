"""Pages made of the code are those of today's code."""

from __future__ import annotations

import json
import runpy
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
MADE = runpy.run_path(str(ROOT / "scripts" / "reference"))["made_of_the_code"]()


@pytest.mark.parametrize("path", MADE, ids=lambda path: path.name)
def test_it_is_what_the_code_says(path: Path) -> None:
    assert path.read_text(encoding="utf-8") == MADE[path], "write it again with scripts/reference"


def test_the_schema_knows_every_field_of_a_run_file() -> None:
    kinds = json.loads((ROOT / "docs" / "run-file.schema.json").read_text(encoding="utf-8"))["$defs"]
    run = json.loads((ROOT / "docs" / "demo-run.json").read_text(encoding="utf-8"))
    assert set(run) <= set(kinds["Run"]["properties"])
    assert {field for stage in run["stages"] for field in stage} <= set(kinds["StageFigures"]["properties"])
    assert {field for remedy in run["remedies"] for field in remedy} <= set(kinds["RemedyFigures"]["properties"])
