"""Where things are mounted, and what kind of file system a path lies on (Linux; from ``/proc/self/mountinfo``)."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

import msgspec

NETWORK = frozenset({
    "nfs", "nfs4", "cifs", "smb3", "smbfs", "ncpfs", "lustre", "ceph", "gpfs", "beegfs", "beegfs_nodev", "glusterfs", "9p",
    "afs", "wekafs", "pvfs2", "orangefs", "panfs", "virtiofs", "vboxsf", "vmhgfs", "prl_fs", "ocfs2", "gfs2", "davfs", "coda",
})  # fmt: skip
"""Kinds whose data lie on another machine (or on the host of this virtual one): the page cache here is only the nearer of two."""

LOCAL_FUSE = frozenset({
    "fuse.fuse-overlayfs", "fuse.overlayfs", "fuse.lxcfs", "fuse.mergerfs", "fuse.ntfs", "fuse.ntfs-3g", "fuse.exfat",
    "fuse.squashfuse", "fuse.bindfs",
})  # fmt: skip
"""FUSE kinds that stand on a local disk. Any other FUSE kind is taken for remote (s3fs, gcsfuse, sshfs, juicefs, blobfuse, …)."""

IN_MEMORY = frozenset({"tmpfs", "ramfs", "devtmpfs", "hugetlbfs", "rootfs"})
OWN_CACHE = frozenset({"zfs"})
"""Kinds that keep file data in a cache of their own, which neither fadvise nor mincore reaches."""


class Filesystem(msgspec.Struct, frozen=True):
    """What a path lies on."""

    kind: str
    """As the kernel names it: ext4, xfs, overlay, nfs4, fuse.gcsfuse, …"""
    mount: str
    source: str = ""
    """The device or the server's address, as mounted."""

    @property
    def network(self) -> bool:
        """True where reads go to another machine or through a user-space server."""
        return self.kind in NETWORK or (self.kind.split(".")[0] == "fuse" and self.kind not in LOCAL_FUSE)

    @property
    def in_memory(self) -> bool:
        return self.kind in IN_MEMORY

    @property
    def own_cache(self) -> bool:
        return self.kind in OWN_CACHE


class Mount(msgspec.Struct, frozen=True):
    """One line of mountinfo."""

    point: str
    root: str
    """The part of the mounted file system that is seen at ``point``."""
    kind: str
    source: str
    options: tuple[str, ...]
    """The file system's own options; for cgroup v1 these name the controllers."""


def _plain(field: str) -> str:
    """Undo mountinfo's octal escapes (a space is ``\\040``)."""
    return re.sub(r"\\([0-7]{3})", lambda match: chr(int(match.group(1), 8)), field)


def text_of(path: str | Path) -> str:
    """A file of the kernel's; empty where it cannot be read."""
    with suppress(OSError):
        return Path(path).read_text(encoding="utf-8", errors="surrogateescape")
    return ""


def mounts(root: str | Path = "/") -> list[Mount]:
    """Every mount this process sees, in mounting order; empty where there is no mountinfo."""
    mounts = []
    for line in text_of(Path(root) / "proc/self/mountinfo").splitlines():
        before, separator, after = line.partition(" - ")
        head, tail = before.split(), after.split()
        if not separator or len(head) < 5 or len(tail) < 2:
            continue
        options = tuple(tail[2].split(",")) if len(tail) > 2 else ()
        mounts.append(Mount(_plain(head[4]), _plain(head[3]), tail[0], _plain(tail[1]), options))
    return mounts


def filesystem(path: str | os.PathLike[str], root: str | Path = "/") -> Filesystem | None:
    """The file system under ``path``; None where that cannot be known (macOS, no /proc)."""
    return _deepest(os.path.realpath(path), mounts(root))


def filesystems(paths: Iterable[str], root: str | Path = "/") -> dict[str, Filesystem]:
    """The same for many paths, looking at the mounts once. Keys are mount points."""
    table = mounts(root)
    under = [_deepest(folder, table) for folder in {os.path.dirname(os.path.realpath(path)) for path in paths}]
    return {each.mount: each for each in under if each is not None}


def _deepest(path: str, table: list[Mount]) -> Filesystem | None:
    best: Mount | None = None
    for mount in table:
        inside = path == mount.point or path.startswith(mount.point.rstrip("/") + "/")
        # A later mount on the same point hides the earlier one, hence "at least as deep".
        if inside and (best is None or len(mount.point) >= len(best.point)):
            best = mount
    return None if best is None else Filesystem(best.kind, best.point, best.source)
