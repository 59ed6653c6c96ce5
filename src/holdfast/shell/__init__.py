"""Sandboxed code sessions: run code, keep its state, go on in another process."""

from holdfast.shell.shell import Shell

__all__ = ["Shell"]
