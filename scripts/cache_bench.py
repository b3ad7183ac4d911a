"""What the benchmarks of caches share: pictures like ImageNet's, a place to work in, and how results are written down."""

from __future__ import annotations

import json
import multiprocessing
import os
import platform
import sys
import tempfile
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))
sys.path.insert(0, str(ROOT / "scripts"))
PLACE = Path(os.environ.get("PIPEFIX_BENCH", str(Path(tempfile.gettempdir()) / "pipefix-bench")))
"""Where pictures are drawn and caches are made; kept, so that pictures are drawn once."""


def pictures(count: int = 1200) -> Path:
    """JPEGs of about 110 kB, 480 pixels wide, in ten class folders."""
    folder = PLACE / f"pictures-like-imagenet-{count}"
    if not (folder / ".drawn").exists():
        with multiprocessing.Pool(os.cpu_count()) as pool:
            pool.map(_draw, [(str(folder), index) for index in range(count)], chunksize=20)
        (folder / ".drawn").touch()
    return folder


def _draw(job: tuple[str, int]) -> None:
    import io

    import numpy as np
    from make_fixtures import photo
    from PIL import Image

    folder, index = job
    path = Path(folder) / f"class-{index % 10}" / f"{index:06d}.jpg"
    path.parent.mkdir(parents=True, exist_ok=True)
    image = Image.open(io.BytesIO(photo(seed=50_000 + index, long_side=480, quality=95))).convert("RGB").resize((480, 400))
    grain = np.random.default_rng(index).normal(0, 15, (400, 480, 3))
    Image.fromarray((np.asarray(image, np.float32) + grain).clip(0, 255).astype(np.uint8)).save(path, "JPEG", quality=93)


def copies(source: Path, times: int) -> Path:
    """The same pictures several times over, as files of their own."""
    folder = PLACE / f"{source.name}-times-{times}"
    if not (folder / ".drawn").exists():
        for path in sorted(source.rglob("*.jpg")):
            data = path.read_bytes()
            for number in range(times):
                to = folder / path.parent.name / f"{path.stem}-{number}.jpg"
                to.parent.mkdir(parents=True, exist_ok=True)
                to.write_bytes(data)
        os.sync()
        (folder / ".drawn").touch()
    return folder


def machine() -> dict[str, Any]:
    from pipefix.measurement.machine import look

    found = look().as_dict()
    return {
        "cpu": found.get("cpu_model"), "cpus": os.cpu_count(), "memory_bytes": found.get("memory_bytes"),
        "system": platform.system(), "python": platform.python_version(),
    }  # fmt: skip


def write(name: str, figures: dict[str, Any], page: list[str]) -> None:
    """``benchmarks/NAME.json`` and ``.md``."""
    folder = ROOT / "benchmarks"
    kept = {"machine": machine(), **figures}
    (folder / f"{name}.json").write_text(json.dumps(kept, indent=1, default=str) + "\n", encoding="utf-8")
    told = kept["machine"]
    lines = [*page, "", f"{told['cpu']}, {told['cpus']} CPUs, Python {told['python']}.", ""]
    (folder / f"{name}.md").write_text("\n".join(lines), encoding="utf-8")
    print("\n".join(lines))
