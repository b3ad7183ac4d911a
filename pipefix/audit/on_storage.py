"""Mistakes about where the files lie."""

from __future__ import annotations

from pipefix.audit.finding import AuditFacts, Said, rule


@rule("network-files", "warning", "samples are read from a network or user-space file system")
def network_files(facts: AuditFacts) -> Said | None:
    far = [under for _, under in sorted(facts.filesystems.items()) if under.network]
    if not far:
        return None
    first = far[0]
    others = f" and {len(far) - 1} more" if len(far) > 1 else ""
    return Said(
        f"Samples are read from {first.mount}{others} ({first.kind}{', ' + first.source if first.source else ''}): "
        "every file costs a round trip or more, and what the server keeps in memory is not yours to rely on.",
        f"Copy the dataset to a local disk first: rsync -a {first.mount.rstrip('/')}/DATASET/ /LOCAL/DATASET/",
    )
