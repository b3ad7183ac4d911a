"""The fake device of tests/gpu, for what takes long on it or tells the time by a real clock."""

from __future__ import annotations

from tests.gpu.conftest import colours, fake_device

__all__ = ["colours", "fake_device"]
