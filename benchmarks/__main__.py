import sys

from benchmarks.harness.command import main

sys.exit(main())
