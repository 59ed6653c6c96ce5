"""What tests of capabilities get."""

from tests.capabilities.support import postgres

__all__ = ["postgres"]
