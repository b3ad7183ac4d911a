"""Mistakes about what workers share, and what is left for each of them to read."""

from __future__ import annotations

from pipefix.audit.finding import AuditFacts, Said, rule

TOLD = 3
"""Handles that are named."""


@rule("handle-before-fork", "problem", "workers are forked while the dataset holds open what every process must open for itself")
def handle_before_fork(facts: AuditFacts) -> Said | None:
    if not facts.num_workers or facts.method != "fork" or not facts.handles:
        return None
    told = ", ".join(f"{handle.where} ({handle.kind})" for handle in facts.handles[:TOLD])
    more = len(facts.handles) - TOLD
    told += f" and {more} more" if more > 0 else ""
    shared = "one handle" if facts.num_workers == 1 else f"one handle in {facts.num_workers} workers"
    return Said(
        f"Opened before the workers are forked: {told}. The training process and its workers would use {shared}: its position in "
        "the file, or its connection, moves under each of them, and what they read is wrong or raises.",
        "Keep the path; open it at the first __getitem__ (self.handle = None in __init__), or in worker_init_fn.",
    )


@rule("few-shards", "warning", "a stream has fewer shards than there are workers")
def few_shards(facts: AuditFacts) -> Said | None:
    workers, shards = facts.num_workers, facts.shards
    if not workers or shards is None or shards >= workers:
        return None
    parts = "1 shard" if shards == 1 else f"{shards} shards"
    return Said(
        f"The stream has {parts} for {workers} workers: {workers - shards} of them get no sample, and more workers change nothing.",
        f"Write the data in at least {workers} shards, or use num_workers={shards}.",
    )
