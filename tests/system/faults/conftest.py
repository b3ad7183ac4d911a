"""As in tests/faults; these mount file systems, interrupt real processes, or are run over and over."""

from tests.faults.conftest import forgets_imports, target, tell

__all__ = ["forgets_imports", "target", "tell"]
