"""What ``torchrun`` or another launcher told this process in its environment: a number, such as its rank; the job that it is of."""

from __future__ import annotations

import os


def number(*names: str) -> int | None:
    """The first of these variables that holds a number; None where none does."""
    return next((int(value) for name in names if (value := os.environ.get(name, "")).isdecimal()), None)


def run_folder() -> str:
    """What `pipefix run` and ``pipefix.auto`` write to, unless told otherwise: each job of Slurm to another, as several may run in
    one directory at a time, on nodes that do not know of each other."""
    job = number("SLURM_HET_JOB_ID", "SLURM_JOB_ID")
    return "pipefix-run" if job is None else f"pipefix-run-{job}"
