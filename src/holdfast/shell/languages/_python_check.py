"""Checks code without running it, in a session of the engine that is kept for that.

First the engine reads it, then the host looks at its names, then the engine's type checker compares it with the
stubs of the capabilities. The session is made for one set of stubs; the variables that the code may use are put
before it, in a line that is never run.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import Any

import anyio
from pydantic_monty import MontyError, MontyTypingError

from holdfast.contracts import Diagnostic, ErrorObject, SessionLimits, Severity
from holdfast.shell.languages import _python_scope as scope
from holdfast.shell.languages._python_awaits import unawaited
from holdfast.shell.languages._python_errors import Text, breached, explain, is_refusal
from holdfast.shell.languages._python_guard import Breach, Guard
from holdfast.shell.languages._python_live import Live
from holdfast.shell.languages._python_names import (
    DISCOVERY,
    binds,
    bound_in,
    complaint,
    guarded_lines,
    missing_imports,
    no_module,
    unknown,
)
from holdfast.shell.languages._python_pool import Pool
from holdfast.shell.languages._python_run import barred
from holdfast.shell.languages._python_subset import BUILTINS
from holdfast.shell.languages._python_types import (
    Report,
    Stubs,
    declared,
    judged,
    prepared,
    reports,
)

__all__ = ["Checker", "binds"]

MAX_CHARS = 1 << 20
"""A session remembers what it was fed: after this much it is replaced."""

_MAX_TOLD = 20
_NO_BUILT_IN = frozenset(BUILTINS) - {"open"}


class Checker:
    """One session that reads code and runs none of it; one check at a time."""

    def __init__(self, pool: Pool) -> None:
        self._pool = pool
        self._limits = SessionLimits()
        self._turn = anyio.Lock()
        self._live: Live | None = None
        self._stubs: str = ""
        self._fed = 0

    async def check(
        self, code: str, *, stubs: str = "", known: frozenset[str] = frozenset()
    ) -> tuple[Diagnostic, ...]:
        """What is wrong with the code; `stubs` declare what it may call, `known` its variables and inputs.

        What is surely wrong is an error, what may be is a warning; they come in the order of the code.
        """
        code = code.removeprefix("\ufeff")
        against = prepared(stubs)
        async with self._turn:
            live = await self._ready(len(code), against)
            guard = Guard(self._limits, live.worker, live.alarm, None)
            try:
                refused = await self._read(live, guard, code)
                if refused is not None:
                    return refused
                typed = await self._typed(live, guard, code, known)
            except Breach as breach:
                await self._drop()
                return _told(breached(breach.code, self._limits))
            except BaseException:
                await self._drop()
                raise
            finally:
                guard.end()
        return _sorted(_Findings(code, against, known).all(typed))

    async def close(self) -> None:
        """End its process."""
        async with self._turn:
            await self._drop()

    async def _read(self, live: Live, guard: Guard, code: str) -> tuple[Diagnostic, ...] | None:
        """What the engine refuses to read; `None` when it read all."""
        try:
            await guard.watch(live.session.feed_run(barred(code), skip_type_check=True))
        except MontyError as error:
            failure = explain(error, Text(code, self._limits, skipped=1))
            if is_refusal(error):
                return _told(failure.error)
            if not failure.kept:
                await self._drop()
                return _told(failure.error)
        return None  # stopped at the barrier: the engine has nothing against what follows

    async def _typed(
        self, live: Live, guard: Guard, code: str, known: frozenset[str]
    ) -> list[Report]:
        """What the type checker has against the code."""
        before = f"{declared(known)}\n"
        try:
            await guard.watch(live.session.feed_run(barred(before + code)))
        except MontyTypingError as error:
            return list(reports(error.display(), skipped=2))
        except MontyError as error:
            if not explain(error, Text(code, self._limits, skipped=2)).kept:
                await self._drop()
        return []

    async def _ready(self, size: int, stubs: Stubs) -> Live:
        if self._live is not None and (self._fed + size > MAX_CHARS or stubs.text != self._stubs):
            await self._drop()
        if self._live is None:
            self._live = await self._pool.checkout(self._limits, stubs=stubs.text)
            self._stubs = stubs.text
        self._fed += size
        return self._live

    async def _drop(self) -> None:
        live, self._live, self._fed = self._live, None, 0
        if live is not None:
            await live.end()


class _Findings:
    """What is wrong with one piece of code that the engine can read."""

    def __init__(self, code: str, stubs: Stubs, known: frozenset[str]) -> None:
        self._lines = Text(code).lines
        self._names = known | DISCOVERY | frozenset(stubs.functions)
        self._tree = scope.parse(code)
        self._own = bound_in(self._tree) if self._tree is not None else frozenset[str]()
        # A variable hides the capability of its name.
        hidden = known | self._own
        functions = {name: how for name, how in stubs.functions.items() if name not in hidden}
        self._stubs = stubs._replace(functions=functions, awaited=stubs.awaited - hidden)

    def all(self, typed: list[Report]) -> Iterator[Diagnostic]:
        """Everything found; `typed` is what the type checker says."""
        tree = self._tree
        if tree is None:
            yield from self._unparsed(typed)
        else:
            yield from map(Diagnostic.error, self._parsed(tree))
        shifting = tree is None or any(isinstance(one, ast.Global) for one in ast.walk(tree))
        guarded = frozenset[int]() if tree is None else guarded_lines(tree)
        for report in typed:
            ready = report.span.line in guarded
            found = judged(report, self._stubs, shifting=shifting, guarded=ready)
            if found is not None:
                yield found

    def _parsed(self, tree: ast.Module) -> Iterator[ErrorObject]:
        near = self._names | self._own
        for use in unknown(tree, self._names | _NO_BUILT_IN):
            yield complaint(
                use.name, scope.span(use.node, self._lines), called=use.called, near=near
            )
        for name, node in missing_imports(tree):
            yield no_module(name, scope.span(node, self._lines))
        for name, node in unawaited(tree, self._stubs.awaited):
            yield ErrorObject(
                code="TYPE_ERROR",
                message=f"The value of `{name}` is used, but the call was not awaited.",
                hint=f"Await it: `await {name}(…)`.",
                span=scope.span(node, self._lines),
            )

    def _unparsed(self, typed: list[Report]) -> Iterator[Diagnostic]:
        """Names that the checker does not know, in code that is too long or too new for the host to read."""
        for one in typed:
            name = one.message.partition("`")[2].partition("`")[0]
            if one.rule == "unresolved-reference" and name not in self._names | _NO_BUILT_IN:
                rest = self._lines[one.span.line - 1][(one.span.end_column or 1) - 1 :]
                called = rest.lstrip().startswith("(")
                found = complaint(name, one.span, called=called, near=self._names)
                yield Diagnostic.error(found)
            elif one.rule == "unresolved-import" and one.message.startswith("Cannot resolve"):
                yield Diagnostic.error(no_module(name, one.span))


def _sorted(found: Iterator[Diagnostic]) -> tuple[Diagnostic, ...]:
    """In the order of the code, each place once; errors first where there are too many."""

    def place(one: Diagnostic) -> tuple[int, int]:
        return (one.span.line, one.span.column) if one.span else (0, 0)

    unique: dict[tuple[Any, ...], Diagnostic] = {}
    for one in sorted(found, key=lambda one: one.severity is not Severity.ERROR):
        unique.setdefault((*place(one), one.code), one)
    return tuple(sorted(list(unique.values())[:_MAX_TOLD], key=place))


def _told(error: ErrorObject) -> tuple[Diagnostic, ...]:
    return (Diagnostic.error(error),)
