"""Caches that something happened to: bits flipped, files cut short, swapped, missing, manifests edited."""

from __future__ import annotations

import random
import shutil
from pathlib import Path
from typing import Any

import numpy as np

from pipefix.caches.dataset import CachedDataset
from pipefix.vocabulary.errors import CacheDamaged, UnreadableFile

KINDS = ("flip", "flip many", "cut", "grow", "swap", "missing", "zero", "edit manifest", "forge manifest", "index flip", "shuffle")


def mutate(folder: Path, random: random.Random) -> str:
    """Do one thing to a copy of a cache; says what."""
    kind = random.choice(KINDS)
    data = sorted((folder / "parts").iterdir())
    indices = sorted((folder / "index").glob("*.idx"))
    manifest = folder / "manifest.json"
    target = random.choice([*data, *data, *indices, manifest])
    if kind == "index flip":
        target, kind = random.choice(indices), "flip"
    if kind in ("edit manifest", "forge manifest"):
        return f"{kind}: {_edit(manifest, random, forge=kind.startswith('forge'))}"
    if kind == "missing":
        target.unlink()
    elif kind == "swap":
        group = random.choice([data, indices])
        if len(group) > 1:
            first, second = random.sample(group, 2)
            content = first.read_bytes()
            first.write_bytes(second.read_bytes())
            second.write_bytes(content)
    else:
        held = bytearray(target.read_bytes())
        _change(held, kind, random)
        target.write_bytes(held)
    return f"{kind}: {target.name}"


def _change(held: bytearray, kind: str, random: random.Random) -> None:
    size = len(held)
    if kind in ("flip", "flip many"):
        for _ in range(1 if kind == "flip" else random.randrange(2, 50)):
            held[random.randrange(size)] ^= 1 << random.randrange(8)
    elif kind == "cut":
        del held[random.randrange(size) :]
    elif kind == "grow":
        held += random.randbytes(random.randrange(1, 5000))
    elif kind == "zero":
        at = random.randrange(size)
        length = random.randrange(1, 4096)
        held[at : at + length] = bytes(len(held[at : at + length]))
    else:
        at, to = random.randrange(size), random.randrange(size)
        held[at : at + 512], held[to : to + 512] = held[to : to + 512], held[at : at + 512]


def _edit(path: Path, random: random.Random, *, forge: bool) -> str:
    """Change a number or a word; forged ones are given a digest that fits."""
    import re

    text = path.read_text()
    places = list(re.finditer(r'(?<=: )(\d+|"[a-z]+")', text))
    place = random.choice(places)
    new = random.choice(["0", "1", "-1", "7", str(2**63), str(10**15), "null", '"x"', "[]", "{}", "0.5", '"../../x"'])
    text = text[: place.start()] + new + text[place.end() :]
    if forge:
        import hashlib

        blank = re.sub(r'"digest": "[0-9a-f]{64}"\n}\n\Z', '"digest": ""\n}\n', text)
        digest = hashlib.sha256(blank.encode()).hexdigest()
        text = blank.removesuffix('"digest": ""\n}\n') + f'"digest": "{digest}"\n}}\n'
    path.write_text(text)
    return f"{place.group()} -> {new}"


def flip(path: Path, at: int) -> None:
    """One bit of a file."""
    held = bytearray(path.read_bytes())
    held[at] ^= 0x10
    path.write_bytes(held)


def plain(sample: Any) -> Any:
    """A sample as something that can be compared."""
    if isinstance(sample, (tuple, list)):
        return [plain(element) for element in sample]
    if isinstance(sample, dict):
        return {key: plain(element) for key, element in sample.items()}
    return np.asarray(sample).tobytes() if hasattr(sample, "shape") or hasattr(sample, "getbands") else sample


def outcome(folder: Path, expected: list[Any], forged: bool) -> str:
    """right, damaged (told with advice), or what must not be: wrong."""
    refusals = right = 0
    try:
        cached = CachedDataset(folder)
    except UnreadableFile as error:
        return "damaged" if error.advice else "wrong: no advice"
    if len(cached) != len(expected) and not forged:
        return f"wrong: {len(cached)} records"
    for index in range(min(len(cached), len(expected))):
        try:
            sample = plain(cached[index])
        except CacheDamaged as error:
            refusals += 1
            if not error.advice:
                return "wrong: no advice"
        else:
            right += 1
            if sample != expected[index] and not forged:
                return f"wrong: sample {index} differs"
    return "damaged" if refusals else "right"


def copy(whole: Path, to: Path) -> Path:
    shutil.rmtree(to, ignore_errors=True)
    shutil.copytree(whole, to)
    return to
