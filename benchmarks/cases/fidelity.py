"""What a program sees of itself, bare and under `pipefix run`: its process, loader, results and exit code, over ways to start and to end.

`benchmarks/programs/facts.py` notes what Python and the system say of its process. A case is a way to start it, a way to start its
loader's worker, and a way to end; it runs bare and under pipefix. Where they differ both are repeated, since launchers with several
ranks differ by themselves: what one run of each side agrees on is the same. Profilers and launchers that also run a program as it is are put to the same test, where they are installed.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from benchmarks.harness.bar import Bar, at_least, none_of
from benchmarks.harness.page import rows
from benchmarks.harness.record import ROOT, Record

TITLE = "What a program notices of being looked into"
ISSUE = "28, bar 1"
MINUTES = 12
QUICK = {"only": ["python, fork, exit 7"]}
FACTS = ROOT / "benchmarks" / "programs" / "facts.py"
ENDS = {"exit 0": "0", "exit 7": "7", "an exception": "raise", "SIGTERM": "term", "os._exit": "leave", "exec": "exec"}
DEEPSPEED = """\
import os, shlex, subprocess, sys
handed_on = {name: value for name, value in os.environ.items() if name.startswith(("MLFLOW", "PYTHON", "MV2", "UCX")) or name == "FACTS"}
exports = "".join(f"export {name}={shlex.quote(value)}; " for name, value in handed_on.items())
shell = {"PATH": os.environ["PATH"], "HOME": os.environ["HOME"]}
words = [sys.executable, "-u", *sys.argv[1:]]
sys.exit(subprocess.run(["sh", "-c", f"{exports} cd {shlex.quote(os.getcwd())}; exec {shlex.join(words)}"], env=shell).returncode)
"""
"""As its launcher starts other nodes: a fresh shell, which is handed variables whose names begin so."""
SRUN = """\
import os, subprocess, sys
ranks = [
    subprocess.Popen(
        [sys.executable, *sys.argv[1:]], stdin=subprocess.DEVNULL, start_new_session=True,
        env={**os.environ, "SLURM_PROCID": str(rank), "SLURM_LOCALID": str(rank), "SLURM_NTASKS": "2"},
    )
    for rank in (0, 1)
]
sys.exit(max(abs(rank.wait()) for rank in ranks))
"""
OWN = "import os\nos.environ['OWN'] = 'own'\n"
"""A ``sitecustomize`` of the program's own."""
WITHOUT = ("modules", "finders", "at exit", "descriptors")
"""Facts that are told apart: how a hook must show to who looks for hooks."""
PEERS = {
    "coverage run": ("coverage", ["-m", "coverage", "run", "--data-file", "OUT"]),
    "viztracer": ("viztracer", ["-m", "viztracer", "--quiet", "-o", "OUT.json"]),
    "scalene": ("scalene", ["-m", "scalene", "run", "-o", "OUT.json"]),
    "memray run": ("memray", ["-m", "memray", "run", "-f", "-o", "OUT"]),
    "py-spy record": ("py-spy", ["py-spy", "record", "-f", "raw", "-o", "OUT", "--", "PYTHON"]),
    "opentelemetry-instrument": ("opentelemetry-instrument", ["opentelemetry-instrument", "PYTHON"]),
    "traceml run": ("traceml", ["traceml", "run"]),
}
BEFORE_ARGUMENTS = {"traceml": ["--args"], "scalene": ["---"]}
PATIENCE_S = 60
REPEATS = 3


def cases() -> dict[str, tuple[str, str, str, bool]]:
    """By name: way to start, of the worker, end, whether there is a sitecustomize of the program's own."""
    named = {}
    for way in WAYS:
        for end in ENDS:
            named[f"{way}, fork, {end}"] = (way, "fork", end, False)
        named[f"{way}, fork, exit 7, its own sitecustomize"] = (way, "fork", "exit 7", True)
    for way, start, end in [
        *(
            (way, start, end)
            for way in ("python", "python -m", "torchrun")
            for start in ("spawn", "forkserver")
            for end in ("exit 0", "exit 7")
        ),
        *(("python -I", "fork", end) for end in ("exit 0", "exit 7", "an exception")),
    ]:
        named[f"{way}, {start}, {end}"] = (way, start, end, False)
    return named


def command(way: str, python: str, folder: Path) -> list[str]:
    script = str(folder / "facts.py")
    return {
        "python": [python, "facts.py"],
        "python -m": [python, "-m", "facts"],
        "python -I": [python, "-I", script],
        "shell": ["sh", str(folder / "job.sh")],
        "torchrun": [python, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", "facts.py"],
        "accelerate": [python, "-m", "accelerate.commands.launch", "--cpu", "--num_processes", "1", "--num_machines", "1",
                       "--mixed_precision", "no", "--dynamo_backend", "no", "facts.py"],
        "deepspeed's way": [python, "deepspeed_way.py", "facts.py"],
        "srun's way": [python, "srun_way.py", "facts.py"],
    }[way]  # fmt: skip


WAYS = ("python", "python -m", "shell", "torchrun", "accelerate", "deepspeed's way", "srun's way")


def prepared(folder: Path, python: str, *, own: bool) -> None:
    shutil.copyfile(FACTS, folder / "facts.py")
    (folder / "job.sh").write_text(f'cd "$(dirname "$0")"\n{python} facts.py "$@"\n')
    (folder / "deepspeed_way.py").write_text(DEEPSPEED)
    (folder / "srun_way.py").write_text(SRUN)
    (folder / "own").mkdir()
    if own:
        (folder / "own" / "sitecustomize.py").write_text(OWN)


def ran(words: list[str], folder: Path) -> dict[str, Any]:
    """Exit code, streams, and the facts of each process."""
    facts = folder / "facts"
    shutil.rmtree(facts, ignore_errors=True)
    facts.mkdir()
    path = os.pathsep.join([str(folder / "own"), str(ROOT)])
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PIPEFIX")}
    environment |= {"PYTHONPATH": path, "FACTS": str(facts), "PYTHONDONTWRITEBYTECODE": "1", "OMP_NUM_THREADS": "1"}
    begun = time.perf_counter()
    pipes = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    with subprocess.Popen(words, cwd=folder, env=environment, text=True, start_new_session=True, **pipes) as process:
        try:
            out, err = process.communicate(timeout=PATIENCE_S)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            return {"code": None, "out": "", "err": "", "facts": {}, "seconds": PATIENCE_S}
    seconds = time.perf_counter() - begun
    noted = {file.stem: json.loads(file.read_text()) for file in sorted(facts.glob("*.json"))}
    return {
        "code": process.returncode,
        "out": out,
        "err": without_numbers(err),
        "facts": flat(noted),
        "seconds": seconds,
    }


def without_numbers(text: str) -> str:
    """Times, process numbers and ports differ from run to run."""
    return re.sub(r"0x[0-9a-f]+|\d+", "N", text)


def flat(value: Any, name: str = "") -> dict[str, Any]:
    """Facts by the words that lead to them."""
    if isinstance(value, dict) and value:
        return {path: fact for key, inner in value.items() for path, fact in flat(inner, f"{name}/{key}").items()}
    return {name: value}


def apart(alone: dict[str, Any], looked_into: dict[str, Any]) -> dict[str, tuple[Any, Any]]:
    """What differs, by its name."""
    differing = {
        name: (alone["facts"].get(name), looked_into["facts"].get(name))
        for name in sorted(alone["facts"].keys() | looked_into["facts"].keys())
        if alone["facts"].get(name) != looked_into["facts"].get(name)
    }
    return differing | {
        name: (alone[name], looked_into[name]) for name in ("code", "out", "err") if alone[name] != looked_into[name]
    }


def one_more_entry(before: Any, after: Any) -> bool:
    """Whether a ``PYTHONPATH`` has one entry of ours before its own."""
    ours, _, rest = str(after).partition(os.pathsep)
    return rest == before and Path(ours).name.startswith("pipefix-hook")


def compared(words: list[str], under: list[str], folder: Path, repeats: int = REPEATS) -> dict[str, Any]:
    alone, looked_into = [ran(words, folder)], [ran(under, folder)]
    differing = apart(alone[0], looked_into[0])
    allowed = {name for name, pair in differing.items() if name.endswith("/PYTHONPATH") and one_more_entry(*pair)}
    told_apart = {name for name in differing if any(part in name.split("/") for part in WITHOUT)}
    surprising = differing.keys() - allowed - told_apart
    for _ in range(repeats):
        if not surprising:
            break
        alone.append(ran(words, folder))
        looked_into.append(ran(under, folder))
        # Ports and names of temporary files differ from run to run; so do launchers, in what one run of each side may agree on.
        surprising -= apart(alone[0], alone[-1]).keys()
        surprising = {name for name in surprising if all(name in apart(one, other) for one in alone for other in looked_into)}
    hooks = sorted({part for name in told_apart for part in WITHOUT if part in name.split("/")})
    return {
        "code": alone[0]["code"], "facts": len(alone[0]["facts"]), "path": bool(allowed), "hooks": hooks, "runs": len(alone),
        "surprising": sorted(surprising),
        "alone_s": alone[0]["seconds"], "under_s": looked_into[0]["seconds"], "code_under": looked_into[0]["code"],
    }  # fmt: skip


def tried(way: str, start: str, end: str, own: bool, python: str) -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place).resolve()
        prepared(folder, python, own=own)
        words = [*command(way, python, folder), start, ENDS[end]]
        return compared(words, [sys.executable, "-m", "pipefix", "run", "-q", "--", *words], folder)


def peer(name: str, python: str) -> dict[str, Any] | None:
    """The same program under another tool; None where it is not installed."""
    needs, words = PEERS[name]
    program = Path(python).parent / words[0]
    if words[0] == "-m":
        if subprocess.run([python, "-c", f"import {needs}"], capture_output=True, check=False).returncode:
            return None
    elif not program.exists():
        return None
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place).resolve()
        prepared(folder, python, own=False)
        own = [
            word.replace("OUT", str(folder / "out")) if "OUT" in word else python if word == "PYTHON" else word for word in words
        ]
        under = [python, *own] if words[0] == "-m" else [str(program), *own[1:]]
        arguments = [*BEFORE_ARGUMENTS.get(needs, []), "fork", "7"]
        return compared([python, "facts.py", "fork", "7"], [*under, "facts.py", *arguments], folder, repeats=0)


def ended(code: int | None) -> str:
    return f"no end in {PATIENCE_S} s" if code is None else f"{code}"


def options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--only", action="append", default=[], help="cases whose name holds this; may be repeated")
    parser.add_argument(
        "--python", default=sys.executable, help="the interpreter of the program, which may hold accelerate and peers"
    )


def measure(options: argparse.Namespace, record: Record) -> bool:
    done: dict[str, Any] = record.body.setdefault("cases", {})
    has_accelerate = subprocess.run([options.python, "-c", "import accelerate"], capture_output=True, check=False).returncode == 0
    wanted = [name for name in cases() if not options.only or any(part in name for part in options.only)]
    for name in wanted:
        if name in done or (name.startswith("accelerate") and not has_accelerate):
            continue
        if record.over():
            return False
        done[name] = tried(*cases()[name], options.python)
        record.save()
        print(f"{name}: {', '.join(done[name]['surprising']) or 'the same'}", flush=True)
    peers: dict[str, Any] = record.body.setdefault("peers", {})
    for name in PEERS if not options.only else ():
        if name not in peers:
            peers[name] = peer(name, options.python)
            record.save()
            print(f"{name}: {peers[name] and peers[name]['surprising']}", flush=True)
    return True


def bars(body: dict[str, Any]) -> list[Bar]:
    done = body["cases"]
    blind = [name for name, case in done.items() if not case["path"] and not name.startswith("python -I")]
    return [
        at_least("cases: ways to start, of the worker, and to end", len(done), 60, "{:.0f}"),
        none_of("cases with another exit code", sum(case["code"] != case["code_under"] for case in done.values())),
        none_of("cases that differ by more than one entry of PYTHONPATH", sum(bool(case["surprising"]) for case in done.values())),
        none_of("cases that the hook did not reach", len(blind)),
    ]


def named(facts: list[str]) -> str:
    """The facts by the last word that says what they are, each once."""
    words = {"a signal's handler" if "/signals/" in fact else fact.split("/")[-1] for fact in facts}
    told = sorted(words - {"out", "err", "code"})
    return ", ".join(told[:12]) + (f" and {len(told) - 12} more" if len(told) > 12 else "") or "nothing"


def table(body: dict[str, Any]) -> str:
    done, names = body["cases"], list(ENDS)
    cells = []
    for way in [*WAYS, "python -I"]:
        of_way = {name: case for name, case in done.items() if name.startswith(f"{way}, ")}
        if not of_way:
            cells.append([way, "not installed", "", ""])
            continue
        others = [fact for case in of_way.values() for fact in case["surprising"]]
        codes = " ".join(str(of_way[name]["code"]) for name in (f"{way}, fork, {end}" for end in names) if name in of_way)
        cells.append([way, f"{len(of_way)}", codes, named(others)])
    hooks = sorted({hook for case in done.values() for hook in case["hooks"]})
    facts = max((case["facts"] for case in done.values()), default=0)
    peers = [
        [
            name, f"{found['code']}", ended(found["code_under"]),
            *(["", ""] if found["code_under"] is None else [f"{len(found['surprising'])}", named(found["surprising"])]),
            "" if found["code_under"] is None else f"{found['under_s'] / found['alone_s']:.2f}",
        ]
        for name, found in body.get("peers", {}).items()
        if found
    ]  # fmt: skip
    return f"""
`benchmarks/programs/facts.py` notes up to {facts} facts a process: arguments, environment, path, streams, signals, limits, threads,
hooks of the interpreter, what its loader, iterator and worker are, batches, losses and random numbers to the last bit. It runs bare and
under `pipefix run -q`. Allowed is one more entry in `PYTHONPATH`. Who looks for hooks finds them, of course: {", ".join(hooks) or "none"} differ
(a `sitecustomize` and modules of ours in `sys.modules`, a finder until torch is imported, a handler at exit, the open file of notes).
Exit codes are those of ends in this order: {", ".join(names)}.

{rows(["way to start", "cases", "exit codes, the same on both sides", "differs besides"], cells)}

## Other tools, on the same program, which ends with exit code 7

Facts that differ are counted likewise; for them an entry of `PYTHONPATH` counts. Profilers have to change more than a hook at loaders does.

{rows(["tool", "exit code bare", "under it", "facts that differ", "which", "time over bare"], peers) if peers else "None was installed."}"""
