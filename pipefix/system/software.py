"""What is installed, and what the environment says about threads. Nothing is imported to find out."""

from __future__ import annotations

import importlib.metadata
from collections.abc import Mapping

PACKAGES = [
    "pipefix", "torch", "torchvision", "torchaudio", "torchcodec", "numpy", "pillow", "pillow-simd", "opencv-python",
    "opencv-python-headless", "opencv-contrib-python", "albumentations", "kornia", "imageio", "h5py", "lmdb", "pyarrow",
    "pandas", "tokenizers", "transformers", "datasets", "webdataset", "fsspec", "nvidia-ml-py", "nvidia-dali-cuda110",
    "nvidia-dali-cuda120", "nvidia-dali-cuda130",
]  # fmt: skip
"""Packages whose version can change a pipeline's speed."""

THREAD_VARIABLES = [
    "OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS", "NUMEXPR_NUM_THREADS", "VECLIB_MAXIMUM_THREADS",
    "OMP_WAIT_POLICY", "KMP_BLOCKTIME", "KMP_AFFINITY", "GOMP_CPU_AFFINITY", "OPENCV_FOR_THREADS_NUM",
    "TOKENIZERS_PARALLELISM", "PYTORCH_NVML_BASED_CUDA_CHECK", "CUDA_VISIBLE_DEVICES", "PYTHONGIL", "MALLOC_MMAP_THRESHOLD_",
    "MALLOC_TRIM_THRESHOLD_",
]  # fmt: skip
"""Environment variables that change how many threads run or how memory is had. Only these are kept."""


def versions() -> dict[str, str]:
    """Installed packages of `PACKAGES` and their versions."""
    versions = {}
    for name in PACKAGES:
        try:
            versions[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    return versions


def thread_environment(environ: Mapping[str, str]) -> dict[str, str]:
    """The variables of `THREAD_VARIABLES` that are set."""
    return {name: environ[name] for name in THREAD_VARIABLES if name in environ}
