"""A credential lease: whether a credential may be used, must be refreshed, is being refreshed, or needs a person.

A fresh machine holds nothing (`Released`); nothing published, nothing usable. The generation rises by one with each
published credential and never otherwise, and outlives a release. So it is the token of a refresh: whoever asks for a
new credential reads the generation first and quotes it with the answer, and a late answer, after a release or a new
login, is discarded. `begin_refresh` exists only outside `Refreshing`: of many callers one starts it, the others wait.

An observation before each call moves a credential to `Expiring` and `Expired`; nobody has to remember to say so.
After a transient failure the old credential serves on until it has really expired: ask `usable`, not the phase alone.
Times are unix milliseconds, as everywhere in holdfast; an expiry of `None` is never.
"""

from __future__ import annotations

from collections.abc import Iterator
from enum import StrEnum
from typing import Any, NamedTuple

from holdfast.machines.kernel import Machine, guard, row

REFRESH_WINDOW_MS = 60_000
"""A credential with no more left than this is refreshed before it is used."""


class Phase(StrEnum):
    """Where a lease is."""

    RELEASED = "Released"
    VALID = "Valid"
    EXPIRING = "Expiring"
    EXPIRED = "Expired"
    REFRESHING = "Refreshing"
    REAUTH_REQUIRED = "ReauthRequired"


class Lease(NamedTuple):
    """The state."""

    phase: Phase = Phase.RELEASED
    generation: int = 0
    expires_at: int | None = None
    published_at: int | None = None
    attempt: int = 0
    """Refreshes that failed since the credential was published."""


def live(expires_at: int | None, now: int) -> bool:
    """Whether something with that expiry is good at `now`."""
    return expires_at is None or expires_at > now


def usable(lease: Lease, now: int) -> bool:
    """Whether the credential may be used at `now`."""
    return lease.phase in (Phase.VALID, Phase.EXPIRING) and live(lease.expires_at, now)


# -- inputs -------------------------------------------------------------------------------------------


class Acquire(NamedTuple):
    """Somebody signed in, or handed a credential over."""

    expires_at: int | None
    now: int


class Observe(NamedTuple):
    """What time it is."""

    now: int
    window_ms: int = REFRESH_WINDOW_MS


class BeginRefresh(NamedTuple):
    """Ask for a new credential. The lease's generation is the token of the answer."""


class CompleteRefresh(NamedTuple):
    """A new credential came."""

    generation: int
    expires_at: int | None
    now: int


class RefreshFailed(NamedTuple):
    """None came."""

    generation: int
    permanent: bool
    now: int


class RequireReauth(NamedTuple):
    """The other side no longer accepts it."""


class Release(NamedTuple):
    """Nobody needs it."""


# -- effects ------------------------------------------------------------------------------------------


class Lifecycle(NamedTuple):
    """The lease moved, or its credential is another."""

    phase: Phase
    generation: int


# -- guards -------------------------------------------------------------------------------------------

_RELEASED, _VALID, _EXPIRING, _EXPIRED, _REFRESHING, _REAUTH = Phase


def _is_over(state: Lease, observed: Observe) -> bool:
    return not live(state.expires_at, observed.now)


def _is_near(state: Lease, observed: Observe) -> bool:
    soon = not live(state.expires_at, observed.now + observed.window_ms)
    return soon and not _is_over(state, observed)


def _is_quiet(state: Lease, observed: Observe) -> bool:
    if state.phase not in (_VALID, _EXPIRING):
        return True
    near = state.phase is _VALID and _is_near(state, observed)
    return not near and not _is_over(state, observed)


NEW_IS_LIVE = guard("expiry_live", lambda s, i: live(i.expires_at, i.now))
OVER = guard("expiry_passed", _is_over)
NEAR = guard("expiry_near", _is_near)
QUIET = guard("nothing_due", _is_quiet)
CURRENT = guard("generation_current", lambda s, i: i.generation == s.generation)
TRANSIENT = guard("transient", lambda s, i: not i.permanent)
PERMANENT = guard("permanent", lambda s, i: i.permanent)
OLD_IS_LIVE = guard("old_expiry_live", lambda s, i: live(s.expires_at, i.now))
OLD_IS_OVER = guard("old_expiry_passed", lambda s, i: not live(s.expires_at, i.now))


def _publish(state: Lease, new: Acquire | CompleteRefresh) -> Lease:
    return Lease(_VALID, state.generation + 1, new.expires_at, new.now)


def _to(phase: Phase) -> Any:
    def moved(state: Lease, _: object) -> Lease:
        return state._replace(phase=phase)

    return moved


def _fail(phase: Phase) -> Any:
    def failed(state: Lease, _: object) -> Lease:
        return state._replace(phase=phase, attempt=state.attempt + 1)

    return failed


def _moved(_: Lease, new: Lease, __: object) -> tuple[Lifecycle]:
    return (Lifecycle(new.phase, new.generation),)


_TELLS: dict[str, Any] = {"effects": _moved, "emits": "Lifecycle"}


def _alphabet(state: Lease) -> Iterator[object]:
    expiry = 100_000
    times = (0, expiry - REFRESH_WINDOW_MS, expiry)
    yield from (BeginRefresh(), RequireReauth(), Release())
    for now in times:
        yield Observe(now)
        for expires_at in (None, expiry):
            yield Acquire(expires_at, now)
            yield CompleteRefresh(state.generation, expires_at, now)
        yield RefreshFailed(state.generation, False, now)
    yield CompleteRefresh(state.generation - 1, None, 0)
    yield RefreshFailed(state.generation - 1, True, 0)
    yield RefreshFailed(state.generation, True, 0)


LEASE = Machine(
    name="credential_lease",
    purpose="Whether a credential may be used, must be refreshed, or needs a person.",
    initial=Lease(),
    rows=(
        row(Acquire, Phase, _VALID, NEW_IS_LIVE, update=_publish, **_TELLS),
        row(Observe, [_VALID, _EXPIRING], _EXPIRED, OVER, update=_to(_EXPIRED), **_TELLS),
        row(Observe, [_VALID], _EXPIRING, NEAR, update=_to(_EXPIRING), **_TELLS),
        row(Observe, Phase, "=", QUIET),
        row(
            BeginRefresh,
            [_VALID, _EXPIRING, _EXPIRED],
            _REFRESHING,
            update=_to(_REFRESHING),
            **_TELLS,
        ),
        row(
            CompleteRefresh,
            [_REFRESHING],
            _VALID,
            CURRENT,
            NEW_IS_LIVE,
            update=_publish,
            **_TELLS,
        ),
        row(
            RefreshFailed,
            [_REFRESHING],
            _EXPIRING,
            CURRENT,
            TRANSIENT,
            OLD_IS_LIVE,
            update=_fail(_EXPIRING),
            **_TELLS,
        ),
        row(
            RefreshFailed,
            [_REFRESHING],
            _EXPIRED,
            CURRENT,
            TRANSIENT,
            OLD_IS_OVER,
            update=_fail(_EXPIRED),
            **_TELLS,
        ),
        row(
            RefreshFailed,
            [_REFRESHING],
            _REAUTH,
            CURRENT,
            PERMANENT,
            update=_fail(_REAUTH),
            **_TELLS,
        ),
        row(
            RequireReauth,
            [_VALID, _EXPIRING, _EXPIRED, _REFRESHING],
            _REAUTH,
            update=_to(_REAUTH),
            **_TELLS,
        ),
        row(Release, [_RELEASED], "="),
        row(
            Release,
            [_VALID, _EXPIRING, _EXPIRED, _REFRESHING, _REAUTH],
            _RELEASED,
            update=lambda s, i: Lease(generation=s.generation),
            **_TELLS,
        ),
    ),
    invariants={
        "Released exactly while nothing is published": lambda s: (
            (s.phase is _RELEASED) == (s.published_at is None)
        ),
        "what is not published neither expires nor fails": lambda s: (
            s.published_at is not None or (s.expires_at is None and s.attempt == 0)
        ),
        "generation 0 is Released": lambda s: (
            s.generation > 0 or (s.generation == 0 and s.phase is _RELEASED)
        ),
        "a Valid credential has no failed refresh": lambda s: (
            s.attempt == 0 or (s.attempt > 0 and s.phase is not _VALID)
        ),
        "what is Expired had an expiry": lambda s: (
            s.phase is not _EXPIRED or s.expires_at is not None
        ),
        "what was published was live": lambda s: (
            s.published_at is None or live(s.expires_at, s.published_at)
        ),
    },
    ends=frozenset({_RELEASED}),
    alphabet=_alphabet,
    bounded=lambda s: s.generation < 4 and s.attempt < 3,
)
