"""Makes the caches of the present format for ``fixtures/caches/``. Those that are there are kept for ever, never made again."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

import numpy as np  # noqa: E402
import torch  # noqa: E402
from PIL import Image  # noqa: E402
from torch.utils.data import Dataset  # noqa: E402

from pipefix.caches.convert import convert, recipe_of  # noqa: E402

GOLDEN = ROOT / "fixtures" / "caches"
CASES = [("source", "lmdb"), ("resized", "lmdb"), ("sample", "lmdb"), ("rows", "parquet")]


class Pictures(Dataset[Any]):
    """The small pictures that are kept in the repository."""

    def __init__(self) -> None:
        self.root = str(ROOT / "fixtures" / "datasets" / "good")
        found = sorted(str(path.relative_to(self.root)) for path in Path(self.root).rglob("*.jpg"))
        self.names = found[:3]

    def __len__(self) -> int:
        return len(self.names)

    def __getitem__(self, index: int) -> Any:
        with open(f"{self.root}/{self.names[index]}", "rb") as file:
            return Image.open(file).convert("RGB"), index


class Everything(Dataset[Any]):
    """Every kind of value that a record holds."""

    def __len__(self) -> int:
        return 3

    def __getitem__(self, index: int) -> Any:
        return {
            "number": index, "float": index / 4, "text": "ü" * index, "none": None, "bytes": bytes(range(index)),
            "list": [1, (2, True)],
            "array": np.arange(4, dtype=np.int16) * index, "tensor": torch.full((2, 2), index / 2), "scalar": np.float32(index),
        }  # fmt: skip


class Rows(Dataset[Any]):
    def __len__(self) -> int:
        return 40

    def __getitem__(self, index: int) -> Any:
        return {"text": f"row {index}", "label": index % 3, "ids": np.arange(index % 4, dtype=np.int32)}


def main() -> int:
    for store, to in CASES:
        folder = GOLDEN / f"{to}-{store}-v1"
        if folder.exists():
            print(f"{folder.name} is there, and stays as it is", file=sys.stderr)
            continue
        source = Everything() if store == "sample" else Rows() if store == "rows" else Pictures()
        size = 32 if store in ("resized", "decoded") else None
        convert(source, recipe_of(to, store, size), folder, target="golden", workers=0)
        manifest = folder / "manifest.json"
        # The place that it was made at is nobody's business.
        _without_place(manifest)
    return 0


def _without_place(path: Path) -> None:
    import msgspec

    from pipefix.caches import manifest as manifests

    found = manifests.read(path.parent)
    source = msgspec.structs.replace(found.source, root="/data/good" if found.source.root else None)
    path.write_bytes(manifests.sealed_text(msgspec.structs.replace(found, source=source)))
    assert json.loads(path.read_text())["source"]["root"] in ("/data/good", None)


if __name__ == "__main__":
    sys.exit(main())
