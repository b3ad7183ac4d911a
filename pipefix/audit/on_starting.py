"""Mistakes about starting workers: imports repeated in each of them, and workers started anew for every epoch."""

from __future__ import annotations

from pipefix.audit.finding import AuditFacts, Said, rule
from pipefix.vocabulary.quantity import percent, seconds

QUICK_START_S = 1.0
"""A first batch sooner than this shows that workers do not pay for importing torch, which takes each of them 1 to 2 s of CPU."""
RESTART_SHARE = 0.05
"""Part of an epoch spent before its first batch: what profilers begin to call a moderate cost of input."""
RESTART_S = 0.05
"""Below this a restart is not told apart from noise."""


@rule(
    "start-method",
    "warning",
    "workers are started with spawn, or forkserver without a preload, and the first batch takes over 1 s or was not timed",
)
def start_method(facts: AuditFacts) -> Said | None:
    method = facts.method
    if not facts.num_workers or method not in ("spawn", "forkserver"):
        return None
    if facts.first_batch_s is not None and facts.first_batch_s <= QUICK_START_S:
        return None
    if method == "forkserver" and (facts.preload is None or set(facts.preload) - {"__main__"}):
        return None
    took = f" The first batch took {seconds(facts.first_batch_s)}." if facts.first_batch_s is not None else ""
    found = f"Each of {facts.num_workers} workers is started by {method} and imports torch and your modules again.{took}"
    if facts.machine is not None and facts.machine.system == "Windows":
        if facts.settings is not None and facts.settings.persistent_workers:
            return None  # spawn is all there is, and it is paid once
        return Said(found, "DataLoader(..., persistent_workers=True)")
    return Said(
        found,
        'At the top of the program: torch.multiprocessing.set_forkserver_preload(["torch", "torchvision"]), '
        'and DataLoader(..., multiprocessing_context="forkserver", persistent_workers=True)',
    )


@rule("worker-restarts", "warning", f"starting the workers again takes more than {percent(RESTART_SHARE)} of an epoch")
def worker_restarts(facts: AuditFacts) -> Said | None:
    settings, restart, epoch = facts.settings, facts.epoch_restart_s, facts.epoch_s
    if settings is None or settings.num_workers == 0 or settings.persistent_workers or restart is None or not epoch:
        return None
    if restart <= RESTART_S or restart / epoch <= RESTART_SHARE:
        return None
    return Said(
        f"Workers are started again for every epoch: {seconds(restart)} before the first batch, "
        f"{percent(min(1.0, restart / epoch))} of an epoch of {seconds(epoch)}.",
        "DataLoader(..., persistent_workers=True)",
    )
