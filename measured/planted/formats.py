"""Encoded samples whose decoding is the planted cost: ``amount`` is the number of pixels (or numbers) in a sample.

A sample's bytes hold one or more pieces behind a small table of lengths; each piece is decoded by one library call.
"""

from __future__ import annotations

import functools
import io
import json
import struct
import zlib
from collections.abc import Callable
from typing import Any

import cv2
import numpy as np
import torch
import torchvision.io
from PIL import Image

Array = np.ndarray[Any, Any]


@functools.cache
def _canvas() -> Array:
    """A picture with texture and noise, so that it compresses about as a photo does."""
    rng = np.random.default_rng(7)
    coarse = rng.integers(0, 255, (200, 200, 3), dtype=np.uint8)
    smooth = cv2.resize(coarse, (1600, 1600), interpolation=cv2.INTER_CUBIC)
    grainy: Array = np.clip(smooth.astype(np.int16) + rng.integers(-8, 8, smooth.shape), 0, 255).astype(np.uint8)
    return grainy


def picture(amount: float, number: int) -> Array:
    side = int(np.clip(round(amount**0.5), 16, 1500))
    start = number * 13 % max(1, 1600 - side)
    return np.ascontiguousarray(_canvas()[start : start + side, start : start + side])


# -- making them ---------------------------------------------------------------------------------------------------


def _pillow(pixels: Array, name: str, **options: Any) -> bytes:
    buffer = io.BytesIO()
    Image.fromarray(pixels).save(buffer, name, **options)
    return buffer.getvalue()


def _npz(pixels: Array) -> bytes:
    buffer = io.BytesIO()
    np.savez_compressed(buffer, pixels=pixels)
    return buffer.getvalue()


def _deflated(pixels: Array) -> bytes:
    return struct.pack("<II", *pixels.shape[:2]) + zlib.compress(pixels.tobytes(), 4)


def _numbers(pixels: Array) -> bytes:
    values = pixels[:, :, 0].ravel().tolist()
    return json.dumps({"values": values, "width": pixels.shape[1]}).encode()


ENCODERS: dict[str, Callable[[Array], bytes]] = {
    "jpeg": lambda pixels: _pillow(pixels, "JPEG", quality=85),
    "png": lambda pixels: _pillow(pixels, "PNG", compress_level=1),
    "cv2": lambda pixels: _pillow(pixels, "JPEG", quality=85),
    "torchvision": lambda pixels: _pillow(pixels, "JPEG", quality=85),
    "npz": _npz,
    "zlib": _deflated,
    "json": _numbers,
}
GUESS = {"jpeg": 3.7e-9, "png": 34e-9, "cv2": 3.3e-9, "torchvision": 3.3e-9, "npz": 12e-9, "zlib": 11e-9, "json": 43e-9}
"""Seconds a pixel, to start the tuning from."""


def packed(name: str, amount: float, pieces: int, number: int) -> bytes:
    """One sample's bytes."""
    parts = [ENCODERS[name](picture(amount / pieces, number + step)) for step in range(pieces)]
    return struct.pack(f"<I{pieces}I", pieces, *(len(part) for part in parts)) + b"".join(parts)


# -- reading them, as a user's dataset would -------------------------------------------------------------------------


def pieces_of(raw: bytes) -> list[bytes]:
    (count,) = struct.unpack_from("<I", raw)
    start = 4 + 4 * count
    found = []
    for length in struct.unpack_from(f"<{count}I", raw, 4):
        found.append(raw[start : start + length])
        start += length
    return found


def decode_jpeg(raw: bytes) -> Image.Image:
    pictures = [Image.open(io.BytesIO(piece)).convert("RGB") for piece in pieces_of(raw)]
    return pictures[-1]


def decode_cv2(raw: bytes) -> Any:
    for piece in pieces_of(raw):
        pixels = cv2.imdecode(np.frombuffer(piece, dtype=np.uint8), cv2.IMREAD_COLOR)
    return pixels


def decode_torchvision(raw: bytes) -> Any:
    for piece in pieces_of(raw):
        pixels = torchvision.io.decode_jpeg(torch.frombuffer(bytearray(piece), dtype=torch.uint8))
    return pixels


def decode_npz(raw: bytes) -> Any:
    for piece in pieces_of(raw):
        with np.load(io.BytesIO(piece)) as archive:
            pixels = archive["pixels"]
    return pixels


def decode_zlib(raw: bytes) -> Array:
    for piece in pieces_of(raw):
        height, width = struct.unpack_from("<II", piece)
        pixels = np.frombuffer(zlib.decompress(piece[8:]), dtype=np.uint8).reshape(height, width, 3)
    return pixels


def decode_json(raw: bytes) -> Any:
    for piece in pieces_of(raw):
        record = json.loads(piece)
    return record


DECODERS: dict[str, Callable[[bytes], Any]] = {
    "jpeg": decode_jpeg,
    "png": decode_jpeg,
    "cv2": decode_cv2,
    "torchvision": decode_torchvision,
    "npz": decode_npz,
    "zlib": decode_zlib,
    "json": decode_json,
}
FLAVOUR = {
    "jpeg": "picture", "png": "picture", "cv2": "array", "npz": "array", "zlib": "array", "torchvision": "tensor", "json": "record",
}  # fmt: skip
"""What a decoded sample is, which decides what augmentation it takes."""
