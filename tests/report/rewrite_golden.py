"""Write the golden reports anew, on purpose, after a change of wording: python tests/report/rewrite_golden.py

Look at the difference before it is committed. The tests never write these files: a missing one is a failure.
"""

from __future__ import annotations

import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from pipefix.report.runfile import read  # noqa: E402
from pipefix.report.text import lines  # noqa: E402

RUNS = ROOT / "fixtures" / "runs"
REPORTS = ROOT / "fixtures" / "reports"
WIDTHS = (100, 80)


def main() -> None:
    for path in sorted(RUNS.glob("*.json")):
        for width in WIDTHS:
            text = "\n".join(lines(read(path), width=width)) + "\n"
            golden = REPORTS / f"{path.stem}.{width}.txt"
            if not golden.exists() or golden.read_text(encoding="utf-8") != text:
                golden.write_text(text, encoding="utf-8")
                print(f"wrote {golden.relative_to(ROOT)}")


if __name__ == "__main__":
    main()
