"""Draws the pictures that the demo and the tests read, from seeds: the same every time, and nothing is drawn twice.

They are photo-like in what matters here: size in pixels and in bytes, smooth regions, edges and grain.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import sys
from pathlib import Path

DATASETS = Path(__file__).resolve().parent.parent / "fixtures" / "datasets"
CLASSES = ("coast", "forest", "market", "street")
PER_CLASS = 24
MARK = ".drawn.json"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--photos", type=Path, default=DATASETS / "photos", metavar="DIR", help="where the demo's pictures go")
    parser.add_argument("--committed", action="store_true", help="draw the small ones that are kept in the repository instead")
    arguments = parser.parse_args()
    if arguments.committed:
        draw_committed(DATASETS)
        return 0
    if drawn(arguments.photos):
        return 0
    count, total = draw_photos(arguments.photos)
    print(f"Drew {count} pictures ({total / 1e6:.1f} MB) in {arguments.photos}", file=sys.stderr)
    return 0


def recipe() -> str:
    """This program is the recipe: pictures of another one are drawn again."""
    return hashlib.sha256(Path(__file__).read_bytes()).hexdigest()


def drawn(folder: Path) -> bool:
    try:
        mark = json.loads((folder / MARK).read_text(encoding="utf-8"))
        sizes = mark["sizes"]
        return mark["recipe"] == recipe() and all((folder / name).stat().st_size == size for name, size in sizes.items())
    except (OSError, ValueError, KeyError, AttributeError):
        return False


def draw_photos(folder: Path) -> tuple[int, int]:
    sizes: dict[str, int] = {}
    for label, name in enumerate(CLASSES):
        (folder / name).mkdir(parents=True, exist_ok=True)
        for index in range(PER_CLASS):
            # Each file appears whole: two programs may draw at once.
            path = folder / name / f"{name}-{index:02d}.jpg"
            data = photo(seed=label * 1000 + index, long_side=420 + 20 * (index % 8))
            draft = path.with_suffix(f".{os.getpid()}.draft")
            draft.write_bytes(data)
            draft.replace(path)
            sizes[f"{name}/{path.name}"] = len(data)
    draft = folder / f"{MARK}.{os.getpid()}.draft"
    draft.write_text(json.dumps({"recipe": recipe(), "sizes": sizes}), encoding="utf-8")
    draft.replace(folder / MARK)
    return len(sizes), sum(sizes.values())


def photo(seed: int, long_side: int, quality: int = 92) -> bytes:
    """A landscape of gradients, soft texture at several scales, a dozen shapes and grain, as JPEG."""
    import io

    import numpy as np
    from PIL import Image, ImageDraw, ImageFilter

    random = np.random.default_rng(seed)
    width, height = long_side, int(long_side * random.uniform(0.72, 0.88))
    if random.random() < 0.25:
        width, height = height, width
    canvas = np.zeros((height, width, 3), np.float32)
    corners = random.uniform(40, 215, (2, 2, 3)).astype(np.float32)
    down, across = np.linspace(0, 1, height)[:, None, None], np.linspace(0, 1, width)[None, :, None]
    canvas += (1 - down) * ((1 - across) * corners[0, 0] + across * corners[0, 1])
    canvas += down * ((1 - across) * corners[1, 0] + across * corners[1, 1])
    for cells, strength in ((6, 30), (24, 18), (96, 10)):
        coarse = random.uniform(-strength, strength, (cells, cells, 3)).astype(np.float32)
        for channel in range(3):
            texture = Image.fromarray(coarse[:, :, channel]).resize((width, height), Image.Resampling.BICUBIC)
            canvas[:, :, channel] += np.asarray(texture)
    picture = Image.fromarray(canvas.clip(0, 255).astype(np.uint8))
    draw = ImageDraw.Draw(picture)
    for _ in range(12):
        x, y = random.integers(0, width), random.integers(0, height)
        w, h = random.integers(width // 20, width // 4), random.integers(height // 20, height // 4)
        shape = draw.ellipse if random.random() < 0.5 else draw.rectangle
        shape((int(x), int(y), int(x + w), int(y + h)), fill=tuple(int(c) for c in random.integers(0, 256, 3)))
    picture = picture.filter(ImageFilter.GaussianBlur(0.8))
    grain = random.normal(0, 5, (height, width, 1))
    picture = Image.fromarray((np.asarray(picture, np.float32) + grain).clip(0, 255).astype(np.uint8))
    out = io.BytesIO()
    picture.save(out, "JPEG", quality=quality, subsampling=2)
    return out.getvalue()


def draw_committed(datasets: Path) -> None:
    """``good``: healthy class folders. ``torn``: a picture cut short and an empty file. ``empty``: folders, no pictures."""
    for name in ("good", "torn"):
        for label, kind in enumerate(("left", "right")):
            folder = datasets / name / kind
            folder.mkdir(parents=True, exist_ok=True)
            for index in range(4):
                (folder / f"{index}.jpg").write_bytes(photo(seed=9000 + label * 10 + index, long_side=64, quality=85))
    whole = datasets / "torn" / "right" / "2.jpg"
    whole.write_bytes(whole.read_bytes()[:900])
    (datasets / "torn" / "right" / "3.jpg").write_bytes(b"")
    for kind in ("left", "right"):
        (datasets / "empty" / kind).mkdir(parents=True, exist_ok=True)
        (datasets / "empty" / kind / ".gitkeep").touch()


if __name__ == "__main__":
    sys.exit(main())
