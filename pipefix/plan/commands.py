"""What to type or to change for a remedy: a command of this version where it has one, and otherwise how to do it by hand."""

from __future__ import annotations

from pipefix.vocabulary.commands import command

BY_HAND = {
    "cache-source": "Pack the files into one LMDB (key: the index; value: the file's bytes) and read them from it in __getitem__.",
    "cache-resized-256": "Save every image once more with its shorter side at 256 pixels, as JPEG of quality 90, and point the "
    "dataset there.",
    "cache-decoded": "Save every decoded array once (one np.lib.format.open_memmap file, or a .npy each) and index it in "
    "__getitem__ instead of decoding.",
    "cache-sample": "Save every sample once as it is before the first random operation (.npy or one memory-mapped file) and start "
    "from it in __getitem__.",
    "augment-gpu": "Take the random operations out of the dataset's transform and apply torchvision.transforms.v2 or "
    "kornia.augmentation "
    "to the batch on the GPU, after it was copied there.",
    "decode-gpu": "Read the files with NVIDIA DALI: fn.readers.file, fn.decoders.image(device='mixed'), then the transforms.",
}
STORES = {"cache-source": "source", "cache-resized-256": "resized", "cache-decoded": "decoded", "cache-sample": "sample"}


def cache(remedy: str, target: str, verbs: frozenset[str]) -> str:
    if "convert" not in verbs:
        return BY_HAND[remedy]
    size = ["--size", "256"] if remedy == "cache-resized-256" else []
    store = STORES[remedy]
    return command("pipefix", "convert", target, "--to", "lmdb", "--store", store, *size, "--out", f"cache-{store}")


def augmentation(target: str, verbs: frozenset[str], to: str = "kornia") -> str:
    if "swap" not in verbs:
        return BY_HAND["augment-gpu" if to == "kornia" else "decode-gpu"]
    return command("pipefix", "swap", target, "--to", to)


def settings(target: str, verbs: frozenset[str], **changes: object) -> str:
    """Arguments to change, and what finds all of them together."""
    changed = loader(**changes)
    return f"{changed}  # or all settings at once: {command('pipefix', 'tune', target)}" if "tune" in verbs else changed


def loader(**changes: object) -> str:
    """Arguments of the DataLoader to change."""
    return "DataLoader(..., " + ", ".join(f"{name}={value!r}" for name, value in changes.items()) + ")"
