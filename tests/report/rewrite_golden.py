"""Write the golden reports anew, on purpose, after a change of wording: python tests/report/rewrite_golden.py

Look at the difference before it is committed. The tests never write these files: a missing one is a failure.
"""

from __future__ import annotations

import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from pipefix.report import probe_report, runfile, terminal  # noqa: E402


def main() -> None:
    for path in sorted((ROOT / "fixtures" / "runs").glob("*.json")):
        text = "\n".join(terminal.lines(probe_report.full(runfile.read(path)))) + "\n"
        golden = ROOT / "fixtures" / "reports" / f"{path.stem}.txt"
        if not golden.exists() or golden.read_text(encoding="utf-8") != text:
            golden.write_text(text, encoding="utf-8")
            print(f"wrote {golden.relative_to(ROOT)}")


if __name__ == "__main__":
    main()
