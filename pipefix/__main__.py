"""``python -m pipefix`` is the ``pipefix`` command."""

from pipefix.cli.main import run

if __name__ == "__main__":
    run()
