"""Capabilities that come with holdfast: files, HTTP, SQL, clock and randomness. All off until granted."""

from __future__ import annotations

from typing import Any

from holdfast.capabilities.builtin.clock import clock
from holdfast.capabilities.builtin.files import files
from holdfast.capabilities.builtin.http import http
from holdfast.capabilities.builtin.randomness import randomness
from holdfast.capabilities.builtin.sql import sql
from holdfast.capabilities.declare import Declared
from holdfast.contracts.policy import Setup

__all__ = ["builtins_of", "clock", "files", "http", "randomness", "sql"]


# `Any`: each has its own parameters and result.
def builtins_of(setup: Setup) -> list[Declared[..., Any]]:
    """What a session's setup grants, ready to be called."""
    found: list[Declared[..., Any]] = []
    if setup.mounts:
        found += files(setup.mounts)
    if setup.allow_hosts:
        found += http(setup.allow_hosts)
    if setup.databases:
        found += sql(setup.databases)
    if setup.clock:
        found += clock()
    if setup.randomness:
        found += randomness()
    return found
