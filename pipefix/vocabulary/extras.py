"""Imports optional packages, or raises with the command that installs them."""

from __future__ import annotations

import importlib
from types import ModuleType

from pipefix.vocabulary.commands import command
from pipefix.vocabulary.errors import MissingExtra


def need(module: str, *, package: str, why: str) -> ModuleType:
    """Import ``module``, or raise `MissingExtra` naming the package on PyPI that has it."""
    try:
        return importlib.import_module(module)
    except ImportError as error:
        message = f"{why} needs the package {module!r}, which cannot be imported: {error}"
        raise MissingExtra(message, advice=f"Install it with: {command('pip', 'install', package)}") from error
