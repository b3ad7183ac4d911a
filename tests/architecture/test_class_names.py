"""One word, one thing: no two classes of the package bear the same name."""

from __future__ import annotations

from collections import defaultdict
from functools import cache

from tests.architecture import house

ALLOWED = house.ROOT / "tests" / "architecture" / "doubled_class_names.txt"
"""Names that still stand for two classes. The list may only shrink; an empty line between two names lets branches merge."""


@cache
def homes() -> dict[str, list[str]]:
    """Where each class name is defined."""
    found: dict[str, list[str]] = defaultdict(list)
    for module, node in house.classes().values():
        found[node.name].append(module.name)
    return dict(found)


def allowed() -> list[str]:
    return ALLOWED.read_text(encoding="utf-8").split()


def test_no_two_classes_have_the_same_name() -> None:
    doubled = {name: where for name, where in homes().items() if len(where) > 1 and name not in allowed()}
    assert not doubled, "give the narrower one the more specific noun"


def test_the_list_of_doubled_names_only_shrinks() -> None:
    mended = [name for name in allowed() if len(homes().get(name, [])) < 2]
    assert not mended, f"no longer doubled: delete these lines of {ALLOWED.name}"
