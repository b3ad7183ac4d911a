"""`fix` and `fix --undo` killed at random moments: the same command goes on, with no debris and nothing foreign touched.

Conversions are killed by `tests/caches/killing.py`.
"""

from __future__ import annotations

import os
import random
import re
import shutil
import signal
import time
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

from pipefix.caches.dataset import CachedDataset
from pipefix.fixes import fix_log
from pipefix.plan import backups, planfile
from tests.attacks.folders import is_debris
from tests.attacks.scene import (
    BUDGETS,
    Scene,
    changes,
    ended,
    fix_with,
    keep_a_step,
    look,
    pictures_project,
    start,
    write,
)

FIX = fix_with(BUDGETS[0])
UNDO = ("fix", "--undo")
PICTURES = 6
COMMANDS = {"fix": FIX, "undo": UNDO}
FOREIGN = ("notes.txt", "pipefix-caches/notes.txt", "pipefix-caches/mine/parts/00000.mdb", "plan.json")
NUMBERED = re.compile(r"pipefix\.plan\.(before|undone)-([1-9]\d*)\.toml")
"""Backups of the plan, and plans that gave way to one."""


class Killing:
    """One command, killed again and again, each time in a fresh copy of the same folder."""

    def __init__(self, place: Path, verb: str, seed: int) -> None:
        self.verb, self.command, self.chance = verb, COMMANDS[verb], random.Random(f"{verb} {seed}")
        self.place, self.template = place, place / "template"
        scene = Scene(self.template)
        pictures_project(scene.project, PICTURES)
        if verb == "undo":
            keep_a_step(scene)
        for name in FOREIGN:
            write(scene.project / name)
        whole = self.fresh("run")
        begun = time.perf_counter()
        whole.run(*self.command).ended_with(0)
        self.seconds = time.perf_counter() - begun
        if verb == "fix":
            keep_a_step(whole)
        self.names = names(whole)
        self.plans = plans(whole.project) if verb == "undo" else None

    def fresh(self, name: str) -> Scene:
        place = self.place / name
        shutil.rmtree(place, ignore_errors=True)
        shutil.copytree(self.template, place, symlinks=True)
        return Scene(place)

    def once(self) -> tuple[bool, list[str]]:
        """Whether it was killed before its end, and what did not hold afterwards."""
        scene = self.fresh("run")
        before = look(scene.project)
        pid = start(scene.project, *self.command, safe=scene.place, output=scene.place / "told")
        killed, wrong = self._kill(pid)
        # Killed once more while it goes on, now and then.
        if killed and self.chance.random() < 0.3:
            _, more = self._kill(start(scene.project, *self.command, safe=scene.place, output=scene.place / "told"))
            wrong += more
        if self.verb == "fix":
            wrong += self._go_on_fixing(scene)
        else:
            told = scene.run(*self.command)
            if told.code not in (0, 2):
                wrong.append(str(told))
        wrong += self._judge(scene, before)
        return killed, wrong

    def _go_on_fixing(self, scene: Scene) -> list[str]:
        """Until a step is kept, taking back what was left before, now and then."""
        held = plans(scene.project)
        wrong = not_gone_on({}, settled(held))
        if self.chance.random() < 0.4:
            unused = fix_log.unused(scene.project)
            told = scene.run(*UNDO)
            wrong += [] if told.code in (0, 2) else [str(told)]
            wrong += not_settled(scene.project)
            expected, held = taken_back(held, unused=bool(unused)), plans(scene.project)
            if held != expected:
                wrong.append(f"undo left {sorted(held)} in place of {sorted(expected)}, or they hold something else")
        for budget in BUDGETS:
            told = scene.run(*fix_with(budget))
            wrong += [] if told.code == 0 else [str(told)]
            wrong += not_settled(scene.project) + not_gone_on(settled(held), plans(scene.project))
            if told.code != 0 or (scene.project / planfile.NAME).exists():
                break
            held = plans(scene.project)
        return wrong

    def _kill(self, pid: int) -> tuple[bool, list[str]]:
        until = time.monotonic() + self.chance.uniform(0, 1.05) * self.seconds
        while time.monotonic() < until:
            if os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None:
                code = ended(pid)
                return False, [] if code in (0, 2) else [f"ended with {code}"]
            time.sleep(0.001)
        everybody = self.chance.random() < 0.6
        (os.killpg if everybody else os.kill)(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
        if gone(pid, 60):
            return True, []
        os.killpg(pid, signal.SIGKILL)
        return True, ["processes of the killed command live on"]

    def _judge(self, scene: Scene, before: dict[str, Any]) -> list[str]:
        kept = {path: what for path, what in before.items() if foreign(path, scene)}
        wrong = changes(kept, look(scene.project))
        left = sorted(names(scene) - self.names) + [name for name in names(scene) if is_debris(name.rsplit("/", 1)[-1])]
        if left:
            wrong.append(f"left over: {left}")
        wrong += not_settled(scene.project)
        if self.plans is not None and plans(scene.project) != self.plans:
            wrong.append(f"plans are {sorted(plans(scene.project))} in place of {sorted(self.plans)}, or hold something else")
        missing = sorted(self.names - names(scene))
        if missing:
            wrong.append(f"missing: {missing}")
        return wrong


def not_settled(folder: Path) -> list[str]:
    """What of it does not hold: the plan is that of the last step in effect, all that it names is there, and nothing besides."""
    plan, wrong = folder / planfile.NAME, []
    text = planfile.text_of(plan)
    states = [backups.before(plan, number).read_text() for number in backups.numbers(plan)]
    if any(earlier == later for earlier, later in pairwise([*states, text or ""])):
        wrong.append("a change of the plan was begun and is not settled")
    if text is not None and not states:
        wrong.append("a plan without a backup of what was there before")
    if unused := fix_log.unused(folder):
        wrong.append(f"no plan names {unused}")
    cache = planfile.decode(text, origin=plan.name).cache if text is not None else None
    if cache is not None and len(CachedDataset(folder / cache.path)) != PICTURES:
        wrong.append("the plan's cache lacks samples")
    return wrong


def plans(folder: Path) -> dict[str, str]:
    """The plan, its backups, and plans that gave way: what each holds, by its name."""
    return {path.name: path.read_text() for path in folder.iterdir() if path.name == planfile.NAME or NUMBERED.fullmatch(path.name)}


def numbered(held: dict[str, str], *kinds: str) -> list[tuple[int, str]]:
    matches = [match for match in map(NUMBERED.fullmatch, held) if match is not None and match[1] in kinds]
    return sorted((int(match[2]), match[0]) for match in matches)


def settled(held: dict[str, str]) -> dict[str, str]:
    """Without the backup of a change that was begun and never made."""
    backups_held = numbered(held, "before")
    if backups_held and held[backups_held[-1][1]] == held.get(planfile.NAME, ""):
        return {name: text for name, text in held.items() if name != backups_held[-1][1]}
    return held


def taken_back(held: dict[str, str], *, unused: bool) -> dict[str, str]:
    """What one `--undo` makes of it: what was left by an interruption goes first and alone, then the last change."""
    backups_held, after = numbered(held, "before"), settled(held)
    if after != held or unused or not backups_held:
        return after
    number, newest = backups_held[-1]
    after = {name: text for name, text in held.items() if name not in (newest, planfile.NAME)}
    if planfile.NAME in held:
        after[f"pipefix.plan.undone-{number}.toml"] = held[planfile.NAME]
    return {**after, planfile.NAME: held[newest]} if held[newest] else after


def not_gone_on(then: dict[str, str], now: dict[str, str]) -> list[str]:
    """What does not hold of the plans, if all that happened between is steps that were kept: each left one backup, in order."""
    lost = [name for name in then if name != planfile.NAME and now.get(name) != then[name]]
    wrong = [f"lost or changed: {lost}"] if lost else []
    last = max((number for number, _ in numbered(then, "before", "undone")), default=0)
    new = sorted(set(now) - set(then) - {planfile.NAME})
    steps = [f"pipefix.plan.before-{last + 1 + step}.toml" for step in range(len(new))]
    if sorted(steps) != new:
        wrong.append(f"{new} in place of {steps}")
    elif now.get(steps[0] if steps else planfile.NAME, "") != then.get(planfile.NAME, ""):
        wrong.append(f"{steps[0]} does not hold the plan of before" if steps else "the plan changed without a backup")
    return wrong


def foreign(path: str, scene: Scene) -> bool:
    name = path[len(str(scene.project)) + 1 :]
    return name in FOREIGN or name == "train.py" or name.startswith(("files/", "pipefix-caches/mine"))


def names(scene: Scene) -> set[str]:
    """What there is, but for locks and what is numbered, which `plans` holds."""
    found = {str(path.relative_to(scene.project)) for path in scene.project.rglob("*") if "__pycache__" not in path.parts}
    return {name for name in found if not name.endswith(".lock") and not NUMBERED.fullmatch(name)}


def gone(group: int, seconds: float) -> bool:
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        try:
            os.killpg(group, 0)
        except ProcessLookupError:
            return True
        time.sleep(0.01)
    return False


def campaign(
    place: Path, verb: str, kills: int, seed: int, seconds: float = 0, note: Callable[..., object] = lambda *_: None
) -> tuple[int, int, list[str]]:
    """Kills, runs that were over before, and what went wrong; ``note`` is told of them after each."""
    killing, done, over, wrong = Killing(place, verb, seed), 0, 0, []
    until = time.monotonic() + seconds
    while done < kills and not (seconds and time.monotonic() > until):
        killed, found = killing.once()
        done, over = done + killed, over + (not killed)
        if found:
            wrong.append(f"{verb}, kill {done}: {found}")
            print(wrong[-1], flush=True)
        note(done, over, wrong)
    return done, over, wrong
