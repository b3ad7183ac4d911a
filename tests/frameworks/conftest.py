"""Rooms that tests of frameworks borrow from."""

from tests.loader.conftest import photo  # noqa: F401
from tests.seams.conftest import seams  # noqa: F401
