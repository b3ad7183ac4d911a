"""What must answer at once stays light: no torch, nor anything that needs it. How long it takes: `scripts/measure weight`."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.architecture.house import ROOT

HEAVY = {"torch", "torchvision", "numpy", "pyarrow", "kornia", "pandas", "cv2"}
MORE = {"rich", "psutil", "inspect", "msgspec", "secrets", "tempfile", "traceback"}
JOB = str(ROOT / "fixtures" / "runs" / "watch.jsonl")
RUN = str(ROOT / "fixtures" / "runs" / "decode-bound-workers.json")
PAGE = "PAGE"

SPY = """
import json, sys
from pipefix.cli.main import main
code = main(json.loads(sys.argv[1]))
print(json.dumps({"code": code, "loaded": sorted(name for name in sys.modules if "." not in name)}), file=sys.stderr)
"""


def loaded_by(code: str, *arguments: str) -> str:
    return subprocess.run([sys.executable, "-c", code, *arguments], check=True, capture_output=True, text=True).stderr


@pytest.mark.parametrize(
    ("words", "never"),
    [
        (["--help"], HEAVY | MORE),
        (["--version"], HEAVY | MORE),
        (["probe", "--help"], HEAVY | MORE),
        (["doctor", "--help"], HEAVY | MORE),
        (["show", RUN], HEAVY),
        (["show", RUN, "--html", PAGE], HEAVY),
        (["compare", RUN, RUN], HEAVY),
        (["watch", JOB, "--once"], HEAVY),
        (["doctor"], HEAVY),
    ],
    ids=lambda given: "-".join(Path(word).name for word in given) if isinstance(given, list) else "",
)
def test_a_command_loads_no_more_than_it_needs(words: list[str], never: set[str], tmp_path: Path) -> None:
    words = [str(tmp_path / "page.html") if word == PAGE else word for word in words]
    told = json.loads(loaded_by(SPY, json.dumps(words)).strip().splitlines()[-1])
    assert told["code"] == 0
    assert not set(told["loaded"]) & never


@pytest.mark.parametrize(
    ("statement", "never"),
    [
        ("import pipefix; dir(pipefix)", HEAVY | {"msgspec", "rich"}),
        ("import pipefix.plan.advise; from pipefix.plan.remedy import all_remedies; all_remedies()", {"torch"}),
        ("import pipefix.plan.planfile", {"torch", "numpy", "pipefix.measurement"}),
        (
            "import pipefix.report.probe_report, pipefix.report.compare, pipefix.report.page, pipefix.report.trace",
            {"torch", "numpy"},
        ),
        ("from pipefix.system.machine import look; look()", {"torch", "numpy", "cv2"}),
        ("import pipefix.watching.follow, pipefix.watching.prometheus", {"torch"}),
    ],
)
def test_an_import_loads_no_more_than_it_needs(statement: str, never: set[str]) -> None:
    loaded = loaded_by(f"{statement}\nimport sys\nprint(*sys.modules, file=sys.stderr)")
    assert not set(loaded.split()) & never
