"""The kernel boundary around every worker process."""

from holdfast.shell.confine.bubblewrap import confine, remove
from holdfast.shell.confine.launcher import Launcher

__all__ = ["Launcher", "confine", "remove"]
