"""Putting it together: everything in this process, on one journal."""

from holdfast.runtime.embedded import Runtime, open
from holdfast.runtime.settings import Settings

__all__ = ["Runtime", "Settings", "open"]
