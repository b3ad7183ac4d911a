"""``scripts/gpu_check --fake``: the tests that need a device, on the fake one; where kernels must compute they are left out."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path

from tests.gpu.fake import build

COMPUTED = {
    "test_augment.py": "results and rates of augmentation, DALI, and training",
    "test_border.py": "cycles, bandwidth, clocks, and a model that trains",
}
"""Files whose tests hold what kernels, libraries or a clock of the device give."""
PLAIN = ("test_on_device.py",)


def main(arguments: list[str]) -> int:
    why = build.why_not()
    if why is not None:
        print(f"No fake device can be made: {why}.")
        return 3
    root = Path(__file__).resolve().parents[3]
    with tempfile.TemporaryDirectory() as folder:
        build.build(Path(folder))
        device = {"LD_PRELOAD": f"{folder}/libfakecudart.so", "LD_LIBRARY_PATH": folder, "OMP_NUM_THREADS": "1"}
        named = [f"tests/gpu/{name}" for name in PLAIN]
        command = [sys.executable, "-m", "pytest", "-m", "gpu", "-p", "no:cacheprovider", *named, *arguments]
        code = subprocess.run(command, cwd=root, env={**os.environ, **device}).returncode
    for name, what in COMPUTED.items():
        print(f"left to a real device: tests/gpu/{name} ({what})")
    return code


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
