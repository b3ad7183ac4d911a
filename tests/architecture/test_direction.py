"""Rooms import only what the house's plan allows, and no modules import each other in a circle."""

from __future__ import annotations

import ast
import sys

from tests.architecture import house

HOOKS = {"vocabulary", "system"}
SUBJECT = {"hooks", *HOOKS}
MEASUREMENT = {"subject", *SUBJECT}
DIAGNOSIS = {"measurement", *MEASUREMENT}
PLAN = {"diagnosis", *DIAGNOSIS}
FIXES = {"plan", "audit", "stores", "tier", "caches", "augment", "kernels", "loader", "tuning", *PLAN}

ALLOWED: dict[str, set[str]] = {
    "system": set(),
    "vocabulary": {"system"},
    "hooks": HOOKS,
    "subject": SUBJECT,
    "measurement": MEASUREMENT,
    "diagnosis": DIAGNOSIS,
    "plan": PLAN,
    "audit": {"system", "vocabulary"},
    "kernels": set(),
    "stores": {"vocabulary"},
    "tier": {"stores", "vocabulary"},
    "caches": {"audit.handle_scan", "hooks", "kernels", "stores", "system", "tier", "vocabulary"},
    "augment": {"hooks", "kernels", "vocabulary"},
    "loader": {"caches", "augment", "kernels", "hooks", "plan.planfile", "system", "vocabulary"},
    "tuning": {"measurement", "loader", "system", "vocabulary"},
    "fixes": FIXES,
    "watching": {"loader.metering", "hooks.torch_internals", "report.runfile", "vocabulary"},
    # Inside a user's program a plan puts FastLoader in place.
    "programs": {
        "loader.fast_loader", "loader.metering", "report.program_figures", "report.runfile", "vocabulary", "hooks.torch_internals",
        "system.forks",
    },
    # The report reads the noun files of the rooms that it tells.
    "report": {
        "vocabulary", "subject.subject", "measurement.measurement",
        "diagnosis.diagnosis", "plan.plan", "fixes.outcome", "caches.manifest", "caches.convert",
        "caches.estimate", "caches.verify", "augment.swap", "augment.split", "augment.parity",
        "tuning.block_figures", "tuning.space", "tuning.limits", "tuning.results",
    },
    "api": {*FIXES, "fixes", "programs", "report", "watching"},
    "auto": {"api.observe"},
    "cli": {"api", "report", "watching.follow", "subject.naming", "caches.manifest", "vocabulary"},
}  # fmt: skip
"""What a room may import besides itself: a whole room, or one module of it."""

CLASSES = {"pipefix.caches.dataset", "pipefix.loader.fast_loader", "pipefix.loader.slots.portable", "pipefix.watching.watch"}
"""Where the classes live that the top package names for users, beside the verbs."""

STANDARD_ONLY = {"vocabulary": {"msgspec"}}
"""Rooms that stand on the standard library and these alone."""


def allowed(room: str, target: str) -> bool:
    parts = target.split(".")
    if len(parts) == 1:
        return False
    return parts[1] == room or parts[1] in ALLOWED[room] or ".".join(parts[1:3]) in ALLOWED[room]


def test_every_room_has_its_line_in_the_plan() -> None:
    assert house.rooms() <= ALLOWED.keys(), "a new room needs a line in ALLOWED (and in the design)"


def test_imports_follow_the_plan() -> None:
    wrong = {name: forbidden(module.room, house.imports(name)) for name, module in house.modules().items()}
    assert not {name: targets for name, targets in wrong.items() if targets}, "may not import these"


def forbidden(room: str, targets: frozenset[str]) -> list[str]:
    if room == "":  # the top package only names what users call
        named = {"pipefix.vocabulary.version", *CLASSES}
        return sorted(target for target in targets - named if not target.startswith("pipefix.api."))
    if room == "__main__":
        return sorted(targets ^ {"pipefix.cli.main"})
    if room == "cli":  # `pipefix.probe`, as users call it
        targets -= {"pipefix"}
    # `import pipefix.hooks as package` names the room's own package.
    return sorted(target for target in targets if not allowed(room, target))


def test_what_is_forbidden_is_found() -> None:
    assert forbidden("vocabulary", frozenset({"pipefix.api.probe", "pipefix.vocabulary.stage"})) == ["pipefix.api.probe"]
    assert forbidden("", frozenset({"pipefix.api.probe", "pipefix.cli"})) == ["pipefix.cli"]
    assert forbidden("__main__", frozenset({"pipefix.cli.main"})) == []
    assert forbidden("audit", frozenset({"pipefix.system.machine", "pipefix.measurement.arm"})) == ["pipefix.measurement.arm"]


def test_nothing_imports_in_a_circle() -> None:
    assert not circles({name: house.imports(name) for name in house.modules()})


def test_circles_are_found() -> None:
    graph = {"a": frozenset({"b"}), "b": frozenset({"c"}), "c": frozenset({"a"}), "d": frozenset({"a"})}
    assert circles(graph) == [["a", "b", "c"]]


def circles(graph: dict[str, frozenset[str]]) -> list[list[str]]:
    """Groups of modules each of which reaches the others."""
    reach: dict[str, set[str]] = {}
    for start in graph:
        seen: set[str] = set()
        waiting = list(graph[start])
        while waiting:
            name = waiting.pop()
            if name not in seen:
                seen.add(name)
                waiting.extend(graph.get(name, ()))
        reach[start] = seen
    circular = [name for name in graph if name in reach[name]]
    groups = {tuple(sorted(other for other in reach[name] if name in reach.get(other, ()))) for name in circular}
    return [list(group) for group in sorted(groups)]


def test_package_files_import_nothing() -> None:
    """A docstring that says how a room's parts play together is welcome there."""
    full = [
        str(module.path.relative_to(house.ROOT))
        for name, module in house.modules().items()
        if module.path.name == "__init__.py"
        and name != "pipefix"
        and [node for node in module.tree.body if not (isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant))]
    ]
    assert not full, "a package file that imports its parts closes a circle"


def test_rooms_of_words_stand_on_the_standard_library() -> None:
    for module in house.modules().values():
        if module.room not in STANDARD_ONLY:
            continue
        known = sys.stdlib_module_names | STANDARD_ONLY[module.room] | {"pipefix"}
        for node in module.nodes:
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            if isinstance(node, ast.ImportFrom):
                names = [node.module or "pipefix"]
            assert {name.split(".")[0] for name in names} <= known, module.path
