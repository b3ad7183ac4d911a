"""The command or the change of code that a remedy proposes."""

from __future__ import annotations

from pipefix.vocabulary.commands import command


def cache(store: str, target: str) -> str:
    size = ["--size", "256"] if store == "resized" else []
    return command("pipefix", "convert", target, "--to", "lmdb", "--store", store, *size, "--out", f"cache-{store}")


def augmentation(target: str, to: str = "kornia") -> str:
    return command("pipefix", "swap", target, "--to", to)


def settings(target: str, **changes: object) -> str:
    """Arguments to change, and what finds all of them together."""
    return f"{loader(**changes)}  # or all settings at once: {command('pipefix', 'tune', target)}"


def loader(**changes: object) -> str:
    """Arguments of the DataLoader to change."""
    return "DataLoader(..., " + ", ".join(f"{name}={value!r}" for name, value in changes.items()) + ")"
