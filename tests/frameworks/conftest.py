"""Rooms that tests of frameworks borrow from, and libraries that the gate's environment lacks.

`scripts/nightly frameworks` has them all, and fails where a test was left out.
"""

from __future__ import annotations

from typing import Any

import pytest

from tests.hooks.conftest import hooks  # noqa: F401
from tests.loader.conftest import photo  # noqa: F401


def package(name: str) -> Any:
    return pytest.importorskip(name, reason=f"the package {name} is not installed", exc_type=ImportError)
