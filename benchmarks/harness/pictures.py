"""Pictures like ImageNet's, drawn once and kept."""

from __future__ import annotations

import io
import multiprocessing
import os
from pathlib import Path

from benchmarks.harness.record import WORK


def pictures(count: int = 1200) -> Path:
    """JPEGs of about 110 kB, 480 pixels wide, in ten class folders."""
    folder = WORK / f"pictures-like-imagenet-{count}"
    if not (folder / ".drawn").exists():
        with multiprocessing.Pool(os.cpu_count()) as pool:
            pool.map(_draw, [(str(folder), index) for index in range(count)], chunksize=20)
        (folder / ".drawn").touch()
    return folder


def _draw(job: tuple[str, int]) -> None:
    import numpy as np
    from PIL import Image

    from scripts.make_fixtures import photo

    folder, index = job
    path = Path(folder) / f"class-{index % 10}" / f"{index:06d}.jpg"
    path.parent.mkdir(parents=True, exist_ok=True)
    image = Image.open(io.BytesIO(photo(seed=50_000 + index, long_side=480, quality=95))).convert("RGB").resize((480, 400))
    grain = np.random.default_rng(index).normal(0, 15, (400, 480, 3))
    Image.fromarray((np.asarray(image, np.float32) + grain).clip(0, 255).astype(np.uint8)).save(path, "JPEG", quality=93)


def copies(source: Path, times: int) -> Path:
    """The same pictures several times over, as files of their own."""
    folder = WORK / f"{source.name}-times-{times}"
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
