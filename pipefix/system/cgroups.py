"""What the control groups around this process allow it: CPU quota, memory, and how often it was held back (cgroup v1 and v2).

A limit may be set at any level, so every level is read, from the process's own group up to the outermost one that its
mounts show. In a container that is usually only the container's own group, mounted as if it were the root.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path, PurePosixPath

import msgspec

from pipefix.system.mounts import Mount, mounts, text_of

UNLIMITED = 1 << 60
"""cgroup v1 writes "no limit" as a huge number (2**63 less a page); nothing real reaches an exbibyte."""


Throttle = dict[str, tuple[int, int]]
"""By every level that has a quota: scheduling periods in which the group wanted to run, and those in which it ran out of quota,
both since it was made."""


def throttled_share(before: Throttle, now: Throttle) -> float | None:
    """Part of the periods between two readings in which the quota ran out, at the worst level; None with no quota."""
    passed = [(now[name][0] - before[name][0], now[name][1] - before[name][1]) for name in before.keys() & now.keys()]
    return max((throttled / periods if periods > 0 else 0.0 for periods, throttled in passed), default=None)


class Limits(msgspec.Struct, frozen=True):
    """What the groups allow. None means no limit is set, or none can be seen."""

    quota_cores: float | None = None
    """CPU seconds allowed each second: the lowest quota of all levels."""
    memory_bytes: int | None = None
    """Of the level that leaves least."""
    memory_used_bytes: int | None = None
    """What counts against ``memory_bytes`` and cannot be dropped: usage less file cache."""


def limits(root: str | Path = "/") -> Limits:
    """Read every limit now."""
    quotas = [quota for version, level in _levels(root, "cpu") if (quota := _quota(version, level)) is not None]
    tightest = min(_memory(root), key=lambda level: level[0] - (level[1] or 0), default=(None, None))
    return Limits(min(quotas, default=None), *tightest)


def memory_left(root: str | Path = "/") -> list[int]:
    """Bytes that each level with a limit still allows."""
    return [max(0, limit - used) for limit, used in _memory(root) if used is not None]


def _memory(root: str | Path) -> list[tuple[int, int | None]]:
    """Of each level with a limit: that, and what is used of it."""
    levels = [(_limit(version, level), _used(version, level)) for version, level in _levels(root, "memory")]
    return [(limit, used) for limit, used in levels if limit is not None]


def throttle(root: str | Path = "/") -> Throttle:
    """Read the throttling counters. Take them once before and once after."""
    limited = [level for version, level in _levels(root, "cpu") if _quota(version, level) is not None]
    counted = {str(level): counters(level / "cpu.stat") for level in limited}
    names = ("nr_periods", "nr_throttled")
    return {level: (stat[names[0]], stat[names[1]]) for level, stat in counted.items() if stat.keys() >= set(names)}


def group_paths(root: str | Path = "/") -> dict[str, str]:
    """Controller -> this process's group; the key of the unified (v2) hierarchy is the empty string."""
    paths: dict[str, str] = {}
    for line in text_of(Path(root) / "proc/self/cgroup").splitlines():
        _, _, rest = line.partition(":")
        names, separator, path = rest.partition(":")
        if separator:
            paths.update(dict.fromkeys(names.split(","), path))
    return paths


def _levels(root: str | Path, controller: str) -> Iterator[tuple[str, Path]]:
    """Every directory that may limit this process, innermost first. Without a line for any in mountinfo, the usual one is tried."""
    hierarchies = [mount for mount in mounts(root) if mount.kind in ("cgroup", "cgroup2")]
    if not hierarchies and (Path(root) / "sys/fs/cgroup/cgroup.controllers").is_file():
        hierarchies = [Mount("/sys/fs/cgroup", "/", "cgroup2", "cgroup2", ())]
    own = group_paths(root)
    for mount in hierarchies:
        version = "v2" if mount.kind == "cgroup2" else "v1"
        path = own.get("") if version == "v2" else own.get(controller) if controller in mount.options else None
        if path is None:
            continue
        base = Path(root) / mount.point.lstrip("/")
        level = base / _below(path, mount.root)
        while level != base:
            if level.is_dir():
                yield version, level
            level = level.parent
        yield version, base


def _below(path: str, mounted: str) -> str:
    """``path`` as seen from a mount of ``mounted``. Empty (the mount point itself) where the two belong to different
    namespaces, as after ``docker exec`` from outside or under a bind mount."""
    inside = path.removeprefix(mounted.rstrip("/"))
    if (inside == path and mounted != "/") or (inside and not inside.startswith("/")):
        return ""
    parts = PurePosixPath(inside.lstrip("/")).parts
    return "" if ".." in parts else "/".join(parts)


def _quota(version: str, level: Path) -> float | None:
    if version == "v2":
        words = text_of(level / "cpu.max").split()
        if len(words) == 2 and words[0].isdigit() and words[1].isdigit() and int(words[1]) > 0:
            return int(words[0]) / int(words[1])
        return None
    quota, period = _number(level / "cpu.cfs_quota_us"), _number(level / "cpu.cfs_period_us")
    return quota / period if quota is not None and period and quota > 0 else None


def _limit(version: str, level: Path) -> int | None:
    limit = _number(level / ("memory.max" if version == "v2" else "memory.limit_in_bytes"))
    return limit if limit is not None and limit < UNLIMITED else None


def _used(version: str, level: Path) -> int | None:
    used = _number(level / ("memory.current" if version == "v2" else "memory.usage_in_bytes"))
    if used is None:
        return None
    stat = counters(level / "memory.stat")
    prefix = "" if version == "v2" else "total_"
    return max(0, used - stat.get(f"{prefix}inactive_file", 0) - stat.get(f"{prefix}active_file", 0))


def _number(path: Path) -> int | None:
    text = text_of(path).strip()
    return int(text) if text.lstrip("-").isdigit() else None


def counters(path: Path) -> dict[str, int]:
    """The lines ``name number`` of such a file; empty where it cannot be read."""
    words = map(str.split, text_of(path).splitlines())
    return {line[0]: int(line[1]) for line in words if len(line) == 2 and line[1].isdigit()}
