"""The folder that is first on ``PYTHONPATH`` of a program that `pipefix run` starts."""
