"""The one place that holds the version; builds and reports read it here."""

VERSION = "0.1.0"
