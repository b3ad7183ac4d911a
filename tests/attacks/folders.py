"""Made-up folders: foreign files, links, pipes, planted logs, plans and manifests; a command in each, and what must hold after it.

A wrong one again: ``campaign(Yard(place), number, 1)``.
"""

from __future__ import annotations

import hashlib
import json
import os
import random
import shutil
import socket
from pathlib import Path
from typing import Any, NamedTuple

from tests.attacks.scene import CODES, HUNG, Ran, Scene, cached_project, changes, fixed_project, look, numbers_project, write

MANIFEST = {"format": "pipefix.cache/2", "pipefix": "0.1.0", "target": "evil.py:dataset", "length": 3, "parts": []}
MARKED = json.dumps(MANIFEST, indent=1)
PLAN = 'format = "pipefix.plan/1"\n\n[loader]\nnum_workers = 1\n'
NOT_OURS = (
    b"", b"theirs\n", b'{"name": "a web application", "parts": []}', b"[tool.other]\nx = 1\n", b"\x00\xff\xfe", b"[" * 30_000,
    b"null",
    b'{"event": "an event of theirs"}\n',
)  # fmt: skip
FOREIGN_HASHES = {hashlib.sha256(content).hexdigest() for content in (*NOT_OURS, MARKED.encode())}
TOP = (
    "pipefix.plan.toml", "pipefix.log.jsonl", "pipefix-caches", "pipefix.before.json", "pipefix.after.json", "pipefix.fix.html",
    "pipefix.plan.toml.1", "pipefix.plan.1.toml", "pipefix.plan.toml.bak", "pipefix.plan.toml.2", "pipefix.json", ".pipefix",
    "notes.txt",
    "pipefix-traceback.txt", "pipefix.log.jsonl.1",
)  # fmt: skip
"""Names beside the target as people, and we, use them."""
IN_A_CACHE = (
    "parts", "index", "manifest.json", "manifest.json.draft", "plan.json", "quarantine.jsonl", "notes.txt", ".pipefix-0123456789ab",
    "parts/00000.mdb", "parts/00001.mdb", "parts/holiday.jpg", "index/00000.idx", "index/manifest.copy", "lists.json", ".lock",
    "x.draft",
    "index/00000.facts", "parts/00000.parquet", ".repair/a",
)  # fmt: skip
CACHES = (
    "out", "out.building", "lmdb", "parquet", "cache-source", "pipefix-caches/source", "pipefix-caches/sample", "lmdb.building",
)  # fmt: skip
KINDS = ("file",) * 4 + ("link", "linked folder", "dangling", "loop", "pipe", "folder", "socket", "device", "unreadable", "marked")
REPORTS = ("pipefix.before.json", "pipefix.after.json", "pipefix.fix.html")


class Case(NamedTuple):
    number: int
    command: tuple[str, ...]
    planted: tuple[str, ...]
    ran: Ran
    wrong: list[str]


class Yard:
    """Projects that commands made once, and cases made from them: in ``cached`` caches lie, in ``fixed`` `pipefix fix` kept one."""

    def __init__(self, place: Path, cached: Path | None = None, fixed: Path | None = None) -> None:
        self.place = place
        made = place / "templates"
        self.templates = {
            "plain": numbers_project(made / "plain"),
            "cached": cached or cached_project(made / "cached"),
            "fixed": fixed or fixed_project(made / "fixed"),
        }

    def case(self, number: int) -> Case:
        """Make a folder, run a command in it, and take it away."""
        chance = random.Random(number)
        place = self.place / "a/b/c/d/e/f/case"  # deeper than planted paths have ".."
        shutil.rmtree(place, ignore_errors=True)
        template = chance.choice(tuple(self.templates))
        place.mkdir(parents=True)
        shutil.copytree(self.templates[template], place / "project", symlinks=True)
        scene = Scene(place)
        victim = write(place / "victim" / "thesis.txt").parent
        write(victim / "parts" / "00000.mdb")
        shutil.copytree(self.templates["cached"] / "lmdb", place / "moved")
        ours = look(scene.project)
        command = draw_command(chance, template)
        planted = self._plant(scene, chance, place_of(command))
        before = look(place)
        ran = scene.run(*command)
        wrong = judge(scene, command, ran, before, ours)
        shutil.rmtree(place, ignore_errors=True)
        return Case(number, command, planted, ran, wrong)

    def _plant(self, scene: Scene, chance: random.Random, near: str | None) -> tuple[str, ...]:
        planted = []
        for _ in range(chance.randint(1, 5)):
            if near is None or chance.random() < 0.25:
                name = chance.choice(TOP)
            elif chance.random() < 0.2:
                name = chance.choice((near, f"{near}.building", *CACHES))
            else:
                name = f"{chance.choice((near, near, near, near + '.building'))}/{chance.choice(IN_A_CACHE)}"
            kind = chance.choice(KINDS)
            if put(scene, name, kind, chance):
                planted.append(f"{name} ({kind})")
        if chance.random() < 0.4:
            path = scene.project / "pipefix.log.jsonl"
            if not os.path.lexists(path) or path.is_file():
                lines = path.read_bytes() if path.exists() else b""
                write(path, lines + planted_log(scene, chance))
                planted.append("lines of a log")
        if chance.random() < 0.2 and put_plan(scene, chance):
            planted.append("a plan that names what is not ours")
        return tuple(planted)


def put(scene: Scene, name: str, kind: str, chance: random.Random) -> bool:
    """Something of the user's; False where there is something already."""
    path = scene.project / name
    try:
        if not path.parent.resolve().is_relative_to(scene.project):
            return False
        path.parent.mkdir(parents=True, exist_ok=True)
        if path.is_file() and not path.is_symlink() and chance.random() < 0.5:
            path.unlink()  # theirs in the place of ours
        if os.path.lexists(path):
            return False
    except (OSError, RuntimeError):  # a loop of links
        return False
    if kind in ("file", "unreadable"):
        write(path, chance.choice(NOT_OURS))
        path.chmod(0o000 if kind == "unreadable" else chance.choice((0o644, 0o600, 0o444)))
    elif kind == "marked":
        write(path, MARKED)
    elif kind == "folder":
        write(path / "00000.mdb")
        write(path / "manifest.json", chance.choice((MARKED, "{}")))
    elif kind == "pipe":
        os.mkfifo(path)
    elif kind == "socket":
        with socket.socket(socket.AF_UNIX) as made:
            here = os.open(path.parent, os.O_RDONLY)
            made.bind(f"/proc/self/fd/{here}/{path.name}")
            os.close(here)
    else:
        goals = {"link": "thesis.txt", "linked folder": "", "dangling": "nowhere", "device": "/dev/zero"}
        moved = kind == "linked folder" and chance.random() < 0.5
        path.symlink_to(path.name if kind == "loop" else scene.place / ("moved" if moved else Path("victim", goals[kind])))
    return True


def planted_log(scene: Scene, chance: random.Random) -> bytes:
    """What a log may say that came with a cloned repository."""
    makes = chance.choice((
        "../victim", str(scene.place / "victim"), str(scene.place / "moved"), "files", ".", "", "..", "~", "pipefix-caches", "lmdb",
        "pipefix-caches/../files", "pipefix-caches/../../moved", "pipefix-caches/source", "\0", "pipefix-caches/sample/parts",
    ))  # fmt: skip
    events: list[dict[str, Any]] = [
        {"event": "begun", "step": 9, "id": "cache-source", "makes": makes, "before": chance.choice((None, "x"))}
    ]
    for event in chance.choice((("dropped",), ("keeping",), ("keeping", "kept"), ("keeping", "kept", "undoing"), ())):
        events.append({"event": event, "step": 9, "id": "cache-source", "after": chance.choice((None, PLAN, "x"))})
    return b"".join(json.dumps(event).encode() + b"\n" for event in events)


def put_plan(scene: Scene, chance: random.Random) -> bool:
    path = scene.project / "pipefix.plan.toml"
    if os.path.lexists(path):
        return False
    cache = chance.choice(("../victim", "../moved", "files", "/", "lmdb", "~/x", "a\\u0000b"))
    write(path, PLAN + f'\n[cache]\npath = "{cache}"\nto = "lmdb"\nstore = "source"\n')
    return True


def draw_command(chance: random.Random, template: str) -> tuple[str, ...]:
    verb = chance.choices(("convert", "undo", "verify", "fix", "tune"), (34, 26, 27, 7, 6))[0]
    there = {"plain": ("out",), "cached": ("lmdb", "parquet"), "fixed": ("pipefix-caches/sample",)}[template]
    cache = chance.choice(there if chance.random() < 0.6 else ("out", "cache-source", "pipefix-caches/source"))
    json_too = ("--json",) if chance.random() < 0.15 else ()
    if verb == "convert":
        to = "parquet" if cache == "parquet" else "lmdb"
        how = chance.choice(((), (), ("--update",), ("--on-bad", "quarantine"), ("--store", "sample"), ("--dry-run",)))
        store = ("--store", "rows") if to == "parquet" and how[:1] != ("--store",) else ()
        return ("convert", "train.py", "--to", to, "--out", cache, "--workers", chance.choice("001"), "-q", *store, *how, *json_too)
    if verb == "undo":
        return ("fix", "--undo", *json_too)
    if verb == "verify":
        return ("verify", chance.choice((cache, cache, cache, cache, "../moved", "../victim", ".")), *json_too)
    if verb == "fix":
        only = chance.choice(((), ("--only", "cache-source"), ("--only", "cache-sample"), ("--dry-run",)))
        return ("fix", "train.py", "--yes", "-q", "--budget", "0.2", *only)
    return ("tune", "train.py", "-q", "--budget", "0.2", "--trials", "1", *(("--no-write",) if chance.random() < 0.3 else ()))


def place_of(command: tuple[str, ...]) -> str | None:
    """The folder in which the command reads or makes a cache."""
    if command[0] == "convert":
        return command[command.index("--out") + 1]
    if command[0] == "verify":
        return command[1] if command[1][0] != "." else None
    return random.Random(str(command)).choice((None, "pipefix-caches/source", "pipefix-caches/sample"))


# -- what must hold --------------------------------------------------------------------------------------------------------


def judge(scene: Scene, command: tuple[str, ...], ran: Ran, before: dict[str, Any], ours: dict[str, Any]) -> list[str]:
    wrong = []
    if ran.code == HUNG:
        wrong.append("never ended")
    elif ran.code not in CODES:
        wrong.append(f"ended with {ran.code}")
    if "outside the fence" in ran.text:
        wrong.append("was about to remove what lies outside")
    after = look(scene.place)
    mine = (str(scene.place / "told"), str(scene.place / "tmp"))
    for line in changes(before, after):
        path = line.rsplit(" is gone" if line.endswith("gone") else " changed", 1)[0]
        if not path.startswith(mine) and not may_change(scene, Path(path), command, before, after, ours):
            wrong.append(line.replace(str(scene.place), "."))
    debris = [path for path in after if path not in before and not path.startswith(mine) and is_debris(Path(path).name)]
    temporary = [name for name in os.listdir(scene.place / "tmp") if not name.startswith("pipefix-traceback")]
    if debris or temporary:
        wrong.append(f"left over: {[path.replace(str(scene.place), '.') for path in debris] + temporary}")
    return wrong


def is_debris(name: str) -> bool:
    return name.startswith((".pipefix-", "pymp-")) or name.endswith((".draft", ".building", ".removing"))


def may_change(scene: Scene, path: Path, command: tuple[str, ...], before: Any, after: Any, ours: Any) -> bool:
    """What the command says that it writes: plans and reports of ours, the log's end, and what our own commands had made."""
    verb, name = command[0], path.name
    if verb == "verify" or "--dry-run" in command or "--no-write" in command:
        return False
    regular = bool(before[str(path)][2]) and not path.is_symlink()
    folder = scene.project
    made_by_us = str(path) in ours and (before[str(path)][0] == 0o040000 or before[str(path)] == ours[str(path)])
    if verb == "convert":
        out = folder / command[command.index("--out") + 1]
        ours_by_name = made_by_us or (regular and str(path) in ours and "--update" in command)  # damaged: that is what it mends
        return ours_by_name and path.is_relative_to(out) and "files" not in path.parts and name != "train.py" and out != folder
    if path.parent == folder and regular and verb in ("fix", "tune"):
        if name == "pipefix.log.jsonl":
            return str(path) in after
        if name == "pipefix.plan.toml":
            return str(path) in ours or before[str(path)][2] not in FOREIGN_HASHES
        if name in REPORTS:
            return made_by_us
    if verb == "fix" and is_left_behind(path, before):
        return True
    if made_by_us and verb == "fix" and (folder / "pipefix-caches" in path.parents or path == folder / "pipefix-caches"):
        return True
    return made_by_us and path.parent == folder and name.startswith("pipefix.plan")


def is_left_behind(path: Path, before: Any) -> bool:
    """By name, place and content what our killed processes leave: a draft of a manifest or an empty lock, and nothing beside it."""
    inside = [Path(other) for other in before if path == Path(other) or path in Path(other).parents]
    files = [other for other in inside if before[str(other)][2] is not None]
    ours = {".pipefix-0123456789ab": hashlib.sha256(MARKED.encode()).hexdigest(), ".lock": hashlib.sha256(b"").hexdigest()}
    return "pipefix-caches" in path.parts and bool(files) and all(before[str(file)][2] == ours.get(file.name) for file in files)


def campaign(yard: Yard, first: int, cases: int) -> list[Case]:
    """The cases that went wrong."""
    return [case for case in map(yard.case, range(first, first + cases)) if case.wrong]


def told(case: Case) -> str:
    return f"case {case.number}: pipefix {' '.join(case.command)} -> {case.ran.code}; planted {list(case.planted)}; {case.wrong}"
