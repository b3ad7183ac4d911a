"""The version of the package, in the one place that builds and reports read it from."""

VERSION = "0.1.0"
