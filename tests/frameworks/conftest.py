"""Rooms that tests of frameworks borrow from."""

from tests.hooks.conftest import hooks  # noqa: F401
from tests.loader.conftest import photo  # noqa: F401
