#!/bin/sh
# As a console script does: an interpreter of its own choice, and a function of a package.
exec "$PYTHON" -c 'import sys; sys.argv = ["train", "--lr", "0.1"]; import argparse_main; argparse_main.main()'
