"""As in tests/programs; these take seconds, or are judged by real clocks."""

from tests.programs.conftest import light, looping, place

__all__ = ["light", "looping", "place"]
