"""Makes a smaller state with the same variables and functions: the engine keeps all code it ever got, this does not.

The variables are taken out of one session and put into a fresh one; functions and imports are fed again. What is
taken out is an `Image`: every object once, by number, so that what was one object stays one, and what stands in
which order stays so. The proof is that the fresh session gives the very same image. Whatever an image can't show
(an instance, a closure, an iterator, a seeded generator) is not compacted.
"""

from __future__ import annotations

import re
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any, NamedTuple

import anyio
from pydantic_monty import AsyncMontySession, MontyError

from holdfast.contracts import SessionLimits
from holdfast.errors import HoldfastError
from holdfast.shell.languages._python_live import Live
from holdfast.shell.languages._python_pool import Pool
from holdfast.shell.languages._python_state import loaded
from holdfast.shell.languages._python_subset import BUILTINS

OURS = "__holdfast_"
"""Names that begin like this are the host's."""

MAX_OBJECTS = 100_000
"""More than that is not compacted: it would take seconds."""

_PATIENCE = 2.0
"""Seconds that it may take."""

_BUILTINS = frozenset(BUILTINS)
_CHUNK = 1000
_ADDRESS = re.compile(r" at 0x[0-9a-f]+")
_FROZEN = frozenset(("tuple", "frozenset", "aware"))

# An object is told by its number, a value that is no object by itself, in a tuple. In this engine the address of an
# object is a multiple of 16. A text that is none comes from code, and is the same as every equal text in code.
_WALK = """
import datetime as __holdfast_dates, decimal as __holdfast_decimal, random as __holdfast_random

def __holdfast_seeded():
    try:
        __holdfast_random.random()
    except Exception:
        return False
    return True

def __holdfast_walk(variables, skipped, most):
    numbers, found, nodes = {}, [], []

    def ref(value):
        kind = type(value)
        if value is None or kind is bool or kind is float:
            return (value,)
        if kind is str and id(value) % 16 != 0:
            return (value,)
        if kind is int and -9223372036854775808 <= value <= 9223372036854775807:
            return (value,)
        key = id(value)
        if key not in numbers:
            numbers[key] = len(found)
            found.append(value)
        return numbers[key]

    names, roots, shown = [], [], []
    for name, value in variables.items():
        if not name.startswith('__holdfast_'):
            names.append(name)
            if name in skipped:
                shown.append([name, repr(type(value)), repr(value)])
            else:
                roots.append([name, ref(value)])
    dates = __holdfast_dates
    while len(nodes) < len(found):
        if len(found) > most:
            return None
        value = found[len(nodes)]
        kind = type(value)
        if kind is list:
            nodes.append(['list', [ref(one) for one in value]])
        elif kind is dict:
            nodes.append(['dict', [ref(one) for pair in value.items() for one in pair]])
        elif kind is tuple:
            nodes.append(['tuple', [ref(one) for one in value]])
        elif kind is set:
            nodes.append(['set', [ref(one) for one in value]])
        elif kind is frozenset:
            nodes.append(['frozenset', [ref(one) for one in value]])
        elif kind is dates.datetime or kind is dates.time:
            if value.tzinfo is None:
                nodes.append(['value', value])
            else:
                nodes.append(['aware', [value.replace(tzinfo=None), ref(value.tzinfo)]])
        elif value is dates.timezone.utc:
            nodes.append(['utc', value])
        elif (kind is str or kind is int or kind is bytes or kind is complex or kind is dates.date
                or kind is dates.timedelta or kind is dates.timezone or kind is __holdfast_decimal.Decimal):
            nodes.append(['value', value])
        else:
            return None
    return [names, roots, shown, nodes, repr(__holdfast_decimal.getcontext())]

None if __holdfast_seeded() else __holdfast_walk(locals(), __holdfast_skipped, __holdfast_most)
"""

_BUILD = """
def __holdfast_build(nodes, order, roots, texts):
    made = []
    for kind, load in nodes:
        if kind == 'value' or kind == 'utc':
            made.append(load)
        elif kind == 'list':
            made.append([])
        elif kind == 'dict':
            made.append({})
        elif kind == 'set':
            made.append(set())
        else:
            made.append(None)

    def get(ref):
        if type(ref) is tuple:
            return ref[0]
        return made[ref] if ref >= 0 else texts[-1 - ref]

    for number in order:
        kind, load = nodes[number]
        if kind == 'tuple':
            made[number] = tuple([get(one) for one in load])
        elif kind == 'frozenset':
            made[number] = frozenset([get(one) for one in load])
        else:
            made[number] = load[0].replace(tzinfo=get(load[1]))
    for number in range(len(nodes)):
        kind, load = nodes[number]
        if kind == 'list':
            made[number].extend([get(one) for one in load])
        elif kind == 'set':
            for one in load:
                made[number].add(get(one))
        elif kind == 'dict':
            for at in range(0, len(load), 2):
                made[number][get(load[at])] = get(load[at + 1])
    return [get(one) for one in roots]

"""

Ref = Any
"""The number of an object, or a value in a tuple. `Any`: it comes from the engine."""


class Image(NamedTuple):
    """All that code can see of a session's variables, but for its functions and modules."""

    names: list[str]
    """Every variable, in the order in which they were first bound."""
    roots: list[tuple[str, Ref]]
    """The variables that are data, and what they hold."""
    shown: list[tuple[str, str, str]]
    """The others: name, type, and how they are written."""
    nodes: list[tuple[str, Any]]
    """The objects: what each is, and what is in it."""
    decimals: str
    """How decimal numbers are rounded."""


async def compacted(
    pool: Pool,
    state: bytes,
    limits: SessionLimits,
    *,
    names: frozenset[str],
    sources: Mapping[str, str],
) -> bytes | None:
    """A smaller state with the same in it; `None` where there is a doubt. Needs one process at a time."""
    if not _BUILTINS.isdisjoint(names):
        return None
    try:
        with anyio.fail_after(_PATIENCE):
            return await _compacted(pool, state, limits, sources)
    except (MontyError, HoldfastError, RuntimeError, TypeError, ValueError, LookupError, OSError):
        return None  # too deep, too much, too long: it stays as it is


async def _compacted(
    pool: Pool, state: bytes, limits: SessionLimits, sources: Mapping[str, str]
) -> bytes | None:
    known = {name: text for name, text in sources.items() if text}
    async with _checked_out(pool, limits) as live:
        # Functions that set `result` from afar were changed when they were fed.
        if await loaded(live, state):
            return None
        before = await image_of(live.session, frozenset(known))
    if before is None:
        return None
    async with _checked_out(pool, limits) as live:
        await rebuild(live.session, before, known)
        small = await live.session.dump()
        after = await image_of(live.session, frozenset(known))
    # As text: 1 is not True there, and no number but itself.
    return small if repr(after) == repr(before) else None


@asynccontextmanager
async def _checked_out(pool: Pool, limits: SessionLimits) -> AsyncGenerator[Live]:
    live = await pool.checkout(limits)
    try:
        yield live
    finally:
        await live.end()


async def image_of(session: AsyncMontySession, skipped: frozenset[str]) -> Image | None:
    """What is in a session, without the variables in `skipped`; `None` when that can't be told.

    The session is not to be used any more.
    """
    inputs = {f"{OURS}skipped": skipped, f"{OURS}most": MAX_OBJECTS}
    told = await session.feed_run(_WALK, inputs=inputs)
    if told is None:
        return None
    names, roots, shown, nodes, decimals = told
    # A variable of that name may have led us astray.
    if not _BUILTINS.isdisjoint(names):
        return None
    bare = [(name, kind, _ADDRESS.sub("", text)) for name, kind, text in shown]
    return Image(
        names, [tuple(one) for one in roots], bare, [tuple(one) for one in nodes], decimals
    )


async def rebuild(session: AsyncMontySession, image: Image, sources: Mapping[str, str]) -> None:
    """Put what an image shows into an empty session, and the text of everything else."""
    texts = _Texts()
    nodes = [(kind, _moved(kind, load, texts)) for kind, load in image.nodes]
    roots = [texts.ref(ref) for _, ref in image.roots]
    # Names come in the order in which code first says them.
    await session.feed_run("".join(f"{name} = None\n" for name in image.names) or "None")
    for text in texts.feeds():
        await session.feed_run(text)
    given: dict[str, Any] = {"nodes": nodes, "order": _order(image.nodes), "roots": roots}
    bound = [f"{name} = {OURS}made[{at}]\n" for at, (name, _) in enumerate(image.roots)]
    over = [f"{OURS}{name} = None\n" for name in (*given, "texts", "made", "build")]
    made = f"{OURS}made = {OURS}build({OURS}nodes, {OURS}order, {OURS}roots, {OURS}texts)\n"
    inputs = {f"{OURS}{name}": value for name, value in given.items()}
    await session.feed_run("".join((_BUILD, made, *bound, *over)), inputs=inputs)
    for name, _, _ in image.shown:
        await session.feed_run(sources[name])


class _Texts:
    """The texts that must come from code."""

    def __init__(self) -> None:
        self._numbers: dict[str, int] = {}

    def ref(self, ref: Ref) -> Ref:
        """The reference, as the fresh session understands it."""
        if isinstance(ref, tuple) and isinstance(ref[0], str):
            return -1 - self._numbers.setdefault(ref[0], len(self._numbers))
        return ref  # pyright: ignore[reportUnknownVariableType]

    def feeds(self) -> list[str]:
        """Code that has them all in it; one list of them would be too long for the engine."""
        every = [repr(one) for one in self._numbers]
        parts = [every[at : at + _CHUNK] for at in range(0, len(every), _CHUNK)]
        return [f"{OURS}texts = []", *(f"{OURS}texts += [{', '.join(one)}]" for one in parts)]


def _moved(kind: str, load: Any, texts: _Texts) -> Any:
    if kind in ("value", "utc"):
        return load
    if kind == "aware":
        return [load[0], texts.ref(load[1])]
    return [texts.ref(one) for one in load]


def _order(nodes: Sequence[tuple[str, Any]]) -> list[int]:
    """The objects that can't be filled later, each after those it holds."""
    done: set[int] = set()
    order: list[int] = []
    for number, (kind, _) in enumerate(nodes):
        todo = [number] if kind in _FROZEN else []
        while todo:
            at = todo[-1]
            held = [] if at in done else _held(nodes, at, done)
            if held:
                todo.extend(held)
                continue
            todo.pop()
            if at not in done:
                done.add(at)
                order.append(at)
    return order


def _held(nodes: Sequence[tuple[str, Any]], number: int, done: set[int]) -> list[int]:
    kind, load = nodes[number]
    refs = load[1:] if kind == "aware" else load
    return [
        ref for ref in refs if isinstance(ref, int) and ref not in done and nodes[ref][0] in _FROZEN
    ]
