"""Makes the environment that the other scripts run in, and prints its interpreter. Standard library only.

A checkout gets ``.venv`` with pipefix installed in place. With PIPEFIX_ENV_HOME set (CI does) the environment lies there instead,
named by what is installed, and is shared by every checkout with the same pins: it then holds the dependencies only.

What is there already is not installed again: a stamp, written last, says what an environment holds. An interrupted set-up has no
stamp and is taken up where it stopped; of two started at once the second waits for the first.
"""

import argparse
import fcntl
import hashlib
import json
import os
import platform
import shutil
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
OLDEST = (3, 10)
STAMP = "pipefix-stamp.json"
MADE = "pipefix-made-this"
NEEDED_BYTES = 7_000_000_000
KEEP_DAYS = 14
IMPORTS = {
    "": "torch torchvision numpy PIL lmdb pyarrow kornia psutil pynvml msgspec rich prometheus_client",
    "test": "pytest pytest_timeout xdist hypothesis albumentations fsspec h5py imageio cv2 pandas requests tokenizers",
}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--test", action="store_true", help="also what the test suite needs")
    extras = ["test"] if parser.parse_args().test else []
    if sys.version_info < OLDEST:
        return again_with_a_newer_python()
    key = pins()
    home = os.environ.get("PIPEFIX_ENV_HOME")
    place = Path(home).expanduser().resolve() / shared_name(key) if home else ROOT / ".venv"
    if not holds(place, key, extras):
        place.parent.mkdir(parents=True, exist_ok=True)
        with open(place.parent / f"{place.name}.lock", "w") as lock:
            wait_for(lock)
            if not holds(place, key, extras):
                set_up(place, key, extras, shared=bool(home))
                if home:
                    forget_old(place)
    elif home:
        os.utime(place / STAMP)
    print(interpreter(place))
    return 0


def again_with_a_newer_python():
    for minor in range(20, OLDEST[1] - 1, -1):
        found = shutil.which(f"python3.{minor}")
        if found:
            os.execv(found, [found, *sys.argv])
    say(f"pipefix needs Python {'.'.join(map(str, OLDEST))} or newer; {sys.executable} is {platform.python_version()}.")
    say("  Name another one with: PYTHON=/path/to/python3 scripts/demo")
    return 1


def pins():
    """What is to be installed, as a hash. Settings of tools do not count."""
    wanted = (ROOT / "pyproject.toml").read_text(encoding="utf-8").split("\n[tool.ruff", 1)[0]
    versions = (ROOT / "constraints.txt").read_text(encoding="utf-8")
    return hashlib.sha256(f"{wanted}\0{versions}".encode()).hexdigest()


def shared_name(key):
    return f"env-{key[:16]}-{sys.implementation.cache_tag}-{platform.machine()}"


def interpreter(place):
    return place / "bin" / "python"


def holds(place, key, extras):
    """Whether everything is there. The Python that made an environment is as good as the one that asks for it now."""
    try:
        stamp = json.loads((place / STAMP).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return False
    same = stamp.get("key") == key and stamp.get("place") == str(place)
    return same and set(extras) <= set(stamp.get("extras", ())) and works(place)


def works(place):
    """Whether its Python runs, is new enough, and is still the one that its packages were installed for."""
    check = f"import os, site, sys; sys.exit(sys.version_info < {OLDEST} or not any(map(os.path.isdir, site.getsitepackages())))"
    try:
        return subprocess.run([interpreter(place), "-c", check], check=False, stderr=subprocess.DEVNULL).returncode == 0
    except OSError:
        return False


def wait_for(lock):
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        say("Another set-up of this environment is under way; waiting for it.")
        fcntl.flock(lock, fcntl.LOCK_EX)


def set_up(place, key, extras, shared):
    begun = time.monotonic()
    (place / STAMP).unlink(missing_ok=True)
    if not usable(place):
        create(place)
    say(f"Installing what pipefix stands on into {place} (PyTorch is large: a few minutes, about 6 GB of disk).")
    free = shutil.disk_usage(place).free
    if free < NEEDED_BYTES:
        say(f"  Only {free / 1e9:.1f} GB are free there; this may not be enough.")
    install(place, extras, shared)
    if not imports(place, extras):
        say("What an earlier, interrupted set-up left is damaged: starting afresh.")
        shutil.rmtree(place)
        create(place)
        install(place, extras, shared)
        if not imports(place, extras):
            fail("The packages were installed, but cannot be imported (the reason is above).", "Is the disk full?")
    draft = place / f"{STAMP}.draft"
    draft.write_text(json.dumps({"key": key, "place": str(place), "extras": extras}), encoding="utf-8")
    draft.replace(place / STAMP)
    say(f"The environment is ready ({time.monotonic() - begun:.0f} s).")


def usable(place):
    """Whether there is an environment to go on with. One that we did not make is never removed."""
    if works(place):
        return True
    if not place.exists() or not any(place.iterdir()):
        return False
    if not (place / MADE).exists():
        version = ".".join(map(str, OLDEST))
        fail(f"{place} exists, is no environment of Python {version} or newer, and was not made here.", f"Remove it: rm -r {place}")
    say(f"{place} no longer works: making it anew.")
    shutil.rmtree(place)
    return False


def create(place):
    say(f"Making {place}")
    place.mkdir(parents=True, exist_ok=True)
    (place / MADE).touch()
    # Some systems ship Python without ensurepip: then the system's own pip installs into the environment.
    for options in ([], ["--without-pip"]):
        made = subprocess.run([sys.executable, "-m", "venv", *options, place], check=False, capture_output=True, text=True)
        if made.returncode == 0:
            return
    say(made.stdout + made.stderr)
    fail(f"{sys.executable} cannot make a virtual environment (its words are above).", "Install Python's venv module.")


def pip(place):
    own = [str(interpreter(place)), "-m", "pip"]
    if subprocess.run([*own, "--version"], check=False, capture_output=True).returncode == 0:
        return own
    return [sys.executable, "-m", "pip", "--python", str(interpreter(place))]


def install(place, extras, shared):
    base = pip(place)
    what = f"{ROOT}[{','.join(extras)}]" if extras else str(ROOT)
    quiet = ["--no-input", "--disable-pip-version-check"]
    code = call([*base, "install", *quiet, "-c", str(ROOT / "constraints.txt"), *([] if shared else ["-e"]), what])
    if code == 0 and shared:
        # Checkouts come and go: each puts itself on the path of the environment that they share.
        code = call([*base, "uninstall", "--yes", *quiet[1:], "pipefix"])
    if code:
        fail(
            f"The packages could not be installed: pip ended with {code} (its words are above).", "Run it again to go on from here."
        )


def imports(place, extras):
    names = " ".join(IMPORTS[extra] for extra in ["", *extras]).split()
    say("Checking that they can be imported.")
    return call([str(interpreter(place)), "-c", "\n".join(f"import {name}" for name in names)]) == 0


def forget_old(place):
    """Remove shared environments of other pins that nobody used for some weeks."""
    for other in place.parent.glob("env-*"):
        stamp = other / STAMP
        if other != place and stamp.exists() and time.time() - stamp.stat().st_mtime > KEEP_DAYS * 86400:
            say(f"Removing {other}, unused for {KEEP_DAYS} days.")
            shutil.rmtree(other, ignore_errors=True)


def call(command):
    """Run with everything it prints on standard error: standard output is for the interpreter's name alone."""
    return subprocess.run(command, check=False, stdin=subprocess.DEVNULL, stdout=sys.stderr).returncode


def say(text):
    print(text, file=sys.stderr, flush=True)


def fail(what, advice):
    say(what)
    say(f"  {advice}")
    raise SystemExit(1)


if __name__ == "__main__":
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        say("Interrupted. Run it again: it goes on from here.")
        sys.exit(130)
