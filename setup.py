"""The native kernel, where it can be built. All else is in pyproject.toml.

Without a compiler or headers the install succeeds, and `pipefix doctor` says what to install.
"""

import importlib.util
from pathlib import Path

from setuptools import Extension, setup
from setuptools.command.build_ext import build_ext

ROOT = Path(__file__).resolve().parent
recipe_file = importlib.util.spec_from_file_location("pipefix_native_recipe", ROOT / "pipefix" / "kernels" / "build.py")
recipe = importlib.util.module_from_spec(recipe_file)
recipe_file.loader.exec_module(recipe)


class BuildNative(build_ext):
    def build_extension(self, ext):
        try:
            recipe.build(Path(self.get_ext_fullpath(ext.name)))
        except recipe.CannotBuild as missing:
            print("No native kernel:", *missing.args)


def buildable():
    missing = recipe.missing()
    if missing:
        print(f"No native kernel: {missing[0]} {missing[1]}")
    return not missing


native = Extension("pipefix.kernels._native", sources=[], py_limited_api=True, optional=True)
setup(
    ext_modules=[native] if buildable() else [],
    cmdclass={"build_ext": BuildNative},
    options={"bdist_wheel": {"py_limited_api": "cp310"}},
)
