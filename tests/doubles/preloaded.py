"""`python -m pipefix` and `python -c` without the seconds that importing torch takes: forked from a process that has imported it.

    python -m tests.doubles.preloaded SOCKET serve      imports what commands need, then listens
    python -S tests/doubles/preloaded.py SOCKET ARGUMENTS...     runs a command line there, and ends as it ended
    python -S tests/doubles/preloaded.py SOCKET -c CODE ARGUMENTS...     the same for a program of its own
    python -S tests/doubles/preloaded.py SOCKET FILE.py ARGUMENTS...     the same for a program in a file

The command has the caller's arguments, environment, folder, mount namespace and standard streams, and its exit code is passed on.
Signals and the caller's process id are not passed on: what is about those starts a process of its own.
"""

from __future__ import annotations

import gc
import json
import os
import signal
import socket
import sys
import types

HANDED = 6
"""Descriptors that come with a command line: three streams, the mount namespace, its root and the folder."""
PROGRAMS = "-programs"
"""Ends the name of the socket that programs are asked for by."""
CLONE_NEWNS = 0x00020000
PR_SET_PDEATHSIG = 1


def ask(place: str, arguments: list[str]) -> int:
    """Have a command line run, and return its exit code (128 and the signal's number where one ended it, as shells say it)."""
    body = json.dumps({"arguments": arguments, "environment": dict(os.environ)}).encode()
    places = [os.open(path, os.O_RDONLY) for path in ("/proc/self/ns/mnt", "/", ".")]
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as line:
        line.connect(place + PROGRAMS if is_program(arguments) else place)
        socket.send_fds(line, [len(body).to_bytes(4, "big")], [0, 1, 2, *places])
        line.sendall(body)
        answer = line.recv(4)
    if len(answer) < 4:
        raise SystemExit("the process that runs commands is gone")
    code = int.from_bytes(answer, "big", signed=True)
    return code if code >= 0 else 128 - code


def is_program(arguments: list[str]) -> bool:
    return arguments[:1] == ["-c"] or arguments[0].endswith(".py")


def serve(place: str) -> None:
    """Run one command line after the other, each in a process forked from here, until this process is ended.

    Programs are forked from another, which has not imported pipefix: what they do before that is theirs to say.
    """
    import ctypes

    import torch
    import torch._dynamo  # most of what importing torchvision takes; torchvision itself would bring its hooks with it

    torch.set_num_threads(1)
    here = os.getpid()
    if os.fork() == 0:
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() == here:
            listen(place + PROGRAMS)

    listen(place)


def listen(place: str) -> None:
    gc.freeze()  # what is here already is not gone through by every process that ends
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as door:
        door.bind(place)
        door.listen()
        os.write(1, b"ready\n")  # at once: two processes write to this pipe, and print() writes twice under PYTHONUNBUFFERED
        while True:
            line, _ = door.accept()
            with line:
                head, descriptors, _, _ = socket.recv_fds(line, 4, HANDED)
                body = b""
                while len(body) < int.from_bytes(head, "big"):
                    body += line.recv(1 << 16)
                child = os.fork()
                if child == 0:
                    door.close()
                    line.close()
                    become(json.loads(body), descriptors)
                for descriptor in descriptors:
                    os.close(descriptor)
                code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
                line.sendall(code.to_bytes(4, "big", signed=True))


def become(asked: dict[str, object], descriptors: list[int]) -> None:
    """Be the process that was asked for; it ends as any interpreter does, by the SystemExit that this raises."""
    import ctypes
    import tempfile

    *streams, mounts, top, folder = descriptors
    if os.geteuid() == 0:
        if ctypes.CDLL(None, use_errno=True).setns(mounts, CLONE_NEWNS):
            raise OSError(ctypes.get_errno(), "setns")
        os.fchdir(top)  # not always that of the namespace, where something is mounted over it
        os.chroot(".")
    os.fchdir(folder)
    for number, stream in enumerate(streams):
        os.dup2(stream, number)
    for descriptor in descriptors:
        os.close(descriptor)
    os.environ.clear()
    os.environ.update(asked["environment"])  # type: ignore[call-overload]
    tempfile.tempdir = None
    arguments: list[str] = asked["arguments"]  # type: ignore[assignment]
    sys.stdin, sys.stdout, sys.stderr = (os.fdopen(number, mode) for number, mode in enumerate("rww"))
    if arguments[:1] == ["-c"]:
        run_program(arguments[1], "<string>", ["-c", *arguments[2:]])
    if is_program(arguments):
        with open(arguments[0], encoding="utf-8") as file:
            run_program(file.read(), os.path.abspath(arguments[0]), arguments)
    from pipefix.cli.main import run

    sys.argv = ["pipefix", *arguments]
    run()


def run_program(code: str, file: str, arguments: list[str]) -> None:
    """What ``python -c CODE`` and ``python FILE`` do, tracebacks included; ends the process as an interpreter ends."""
    main = sys.modules["__main__"] = types.ModuleType("__main__")
    if os.path.isabs(file):
        vars(main)["__file__"] = file
    sys.argv = arguments
    sys.path.insert(0, os.path.dirname(file))
    try:
        exec(compile(code, file, "exec"), vars(main))
    except Exception as error:  # noqa: BLE001
        frames = error.__traceback__
        error.with_traceback(frames and frames.tb_next)
        sys.excepthook(type(error), error, error.__traceback__)
        raise SystemExit(1) from None
    raise SystemExit


if __name__ == "__main__":
    if sys.argv[2:] == ["serve"]:
        serve(sys.argv[1])
    else:
        sys.exit(ask(sys.argv[1], sys.argv[2:]))
