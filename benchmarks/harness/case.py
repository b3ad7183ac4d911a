"""A case: one benchmark, a module of `benchmarks.cases`.

It has
    TITLE       of its page
    ISSUE       whose bar it measures
    MINUTES     that a whole run takes, about
    QUICK       options of a run that only shows that the case works
    measure     (options, record): fills ``record.body``; returns False while there is more to do
    bars        (body): the claims, each with its figure and its limit
    table       (body): the page below its conclusion, Markdown
and may have
    options     (parser): options of its own
    CODE        rooms of the package: when their code changes, portions measured before it are not gone on with
"""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from types import ModuleType
from typing import Any

from benchmarks import cases
from benchmarks.harness.bar import Bar


@dataclass(frozen=True)
class Case:
    name: str
    module: ModuleType

    @property
    def title(self) -> str:
        return str(self.module.TITLE)

    @property
    def issue(self) -> str:
        return str(self.module.ISSUE)

    @property
    def about(self) -> str:
        """The first line of what the module says of itself."""
        return (self.module.__doc__ or "").strip().split("\n")[0]

    @property
    def minutes(self) -> float:
        return float(self.module.MINUTES)

    @property
    def quick(self) -> dict[str, Any]:
        return dict(self.module.QUICK)

    @property
    def code(self) -> Sequence[str]:
        return getattr(self.module, "CODE", ())

    @property
    def options(self) -> Callable[[Any], None] | None:
        return getattr(self.module, "options", None)

    def measure(self, options: Any, record: Any) -> bool:
        return self.module.measure(options, record) is not False

    def bars(self, body: dict[str, Any]) -> list[Bar]:
        return list(self.module.bars(body))

    def table(self, body: dict[str, Any]) -> str:
        return str(self.module.table(body))


def names() -> list[str]:
    return sorted(module.name for module in pkgutil.iter_modules(cases.__path__) if not module.name.startswith("_"))


def load(name: str) -> Case:
    return Case(name, importlib.import_module(f"benchmarks.cases.{name}"))
