"""Credentials as leases: asked for before each call, renewed before they expire, known by nobody else.

What a lease does is decided by its machine (`machines/lease.py`); this file feeds it and does what it says. Where it
stands is kept in the vault, together with the credential, so all processes on one vault agree. Of N callers who need
a new credential one gets it, in whichever process, because it holds the lease's lock in the vault; a refresher that
died has lost the lock, and the next one starts over. A late result meets another generation and is dropped.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple

import anyio

from holdfast.contracts import Draft
from holdfast.contracts.lease import LEASES, LeaseChanged, LeaseView
from holdfast.errors import CallerError, OperatorError, PersonError
from holdfast.gate.executor import Answer, NeedsAnswer
from holdfast.journal import Journal
from holdfast.leases._secrets import Redact, Shown
from holdfast.leases._telling import (
    check_host,
    check_key,
    credential_of,
    reason_of,
    told_of,
    view_of,
    window_of,
)
from holdfast.leases._web import Web
from holdfast.leases.credential import Credential, Entry, Given, OAuthRenewal, normal_host
from holdfast.leases.flow import Ask
from holdfast.leases.logins import Logins
from holdfast.leases.oauth import TokenRefused, now_ms
from holdfast.leases.renewing import Renew, Renewer
from holdfast.leases.vault import Value, Vault
from holdfast.machines.kernel import Rejected
from holdfast.machines.lease import (
    LEASE,
    Acquire,
    BeginRefresh,
    CompleteRefresh,
    Lease,
    Observe,
    Phase,
    RefreshFailed,
    Release,
    RequireReauth,
    live,
    usable,
)

ENTRY = "lease:"
"""What the names of leases in the vault begin with."""

ATTEMPTS = (0.0, 0.25, 1.0)
"""Seconds before each attempt to renew what has expired, while its callers wait."""

MAX_PAUSE_MS = 30_000


class _Flight:
    """A renewal under way."""

    __slots__ = ("done", "error")

    def __init__(self) -> None:
        self.done = anyio.Event()
        self.error: OperatorError | None = None


class _Pause(NamedTuple):
    """No renewal before that time, after one that failed; what has expired meanwhile is not held back by it."""

    until: int
    phase: Phase
    error: TokenRefused


class Broker:
    """The credentials of a runtime: `hf.leases`."""

    def __init__(
        self,
        vault: Vault,
        journal: Journal,
        *,
        redact: Redact | None = None,
        now: Callable[[], int] = now_ms,
        renew: Renew | None = None,
    ) -> None:
        """`redact` learns every live value before it can be used; `renew` is how new credentials are got."""
        self._vault = vault
        self._journal = journal
        self._shown = Shown(redact)
        self._now = now
        web = Web()
        self._renew = renew or Renewer(web, now)
        self._known: dict[str, tuple[object, Entry]] = {}
        self._flights: dict[str, _Flight] = {}
        self._pauses: dict[str, _Pause] = {}
        self.logins = Logins(self, vault, web, now=now, shown=self._shown)
        """Signing in."""

    # -- having one -----------------------------------------------------------------------------------

    async def acquire(
        self, key: str, given: Given, *, actor: str = "operator", reason: str = "signed_in"
    ) -> LeaseView:
        """Somebody signed in, or hands a credential over: it is the key's from now on."""
        check_key(key)
        if not given.hosts:
            raise CallerError(
                "INVALID_ARGUMENT",
                f"Credential `{key}` names no host, so it could be used nowhere.",
                hint="Give the hosts it may be sent to, such as `api.example.com`.",
            )
        hosts = tuple(dict.fromkeys(map(normal_host, given.hosts)))
        given = given.model_copy(update={"hosts": hosts})
        now = self._now()
        if not live(given.expires_at, now):
            raise CallerError(
                "INVALID_ARGUMENT",
                f"Credential `{key}` has expired already.",
                hint="`expires_at` is a point in time, in unix milliseconds.",
            )
        self._shown.add(key, given.secrets)
        step = Acquire(given.expires_at, now)
        entry = await self._step(key, step, reason, given=given, actor=actor)
        self._pauses.pop(key, None)
        return view_of(key, entry)

    async def release(self, key: str, *, actor: str = "operator") -> None:
        """Nobody needs it: it is forgotten. One that is being renewed is not taken when it comes."""
        check_key(key)
        await self.logins.drop(key)
        entry = await self._fresh(key)
        if entry.lease.phase is not Phase.RELEASED:
            await self._step(key, Release(), "logged_out", actor=actor)

    async def status(self) -> list[LeaseView]:
        """Every lease there is, by key, as of now."""
        names = await self._vault.names(ENTRY)
        found: list[LeaseView] = []
        for name in names:
            key = name.removeprefix(ENTRY)
            found.append(view_of(key, await self._observed(key)))
        return found

    async def view(self, key: str) -> LeaseView | None:
        """One of them; `None` when there never was a credential."""
        check_key(key)
        entry = await self._observed(key)
        return None if entry.lease.generation == 0 else view_of(key, entry)

    async def restore(self) -> int:
        """After a restart: every value that is kept is known to the redactor; how many leases there are."""
        return len(await self.status())

    # -- using it -------------------------------------------------------------------------------------

    async def use(
        self, key: str, *, host: str, answers: Mapping[str, Answer] | None = None
    ) -> Credential:
        """The credential for one call to `host` (with its port, unless that is 443; or a whole address).

        It is renewed first if it must be. Raises `NeedsAnswer` when a person must sign in. `answers` are those of the call's context: whoever was asked
        and did not sign in is not asked again.
        """
        check_key(key)
        while True:
            entry = await self._observed(key)
            check_host(key, entry, host)
            if entry.given is None or entry.lease.phase is Phase.REAUTH_REQUIRED:
                raise await self._sign_in(key, answers)
            if entry.lease.phase is Phase.VALID:
                return credential_of(key, entry)
            if not entry.renewable:
                if usable(entry.lease, self._now()):
                    return credential_of(key, entry)
                await self._moved(key, RequireReauth(), entry.lease.generation, "expired")
                continue
            pause = self._paused(key, entry.lease)
            error = pause.error if pause else await self._refresh(key, entry.lease.generation)
            entry = await self._observed(key)
            if error is not None and entry.lease.phase is not Phase.REAUTH_REQUIRED:
                if usable(entry.lease, self._now()):
                    return credential_of(key, entry)
                if entry.lease.phase is Phase.EXPIRED:
                    raise error

    async def renew(self, key: str, generation: int) -> bool:
        """The other side refused the credential of that generation: get another, if that needs no person.

        False when it does. True as well when there is a newer one by now. Raises `AUTH_FAILED` while nobody can say:
        an authorization server that has trouble is no reason to ask a person.
        """
        while True:
            entry = await self._observed(key)
            phase = entry.lease.phase
            if entry.lease.generation != generation:
                return entry.given is not None and phase is not Phase.REAUTH_REQUIRED
            if not entry.renewable or phase is Phase.REAUTH_REQUIRED:
                return False
            pause = self._paused(key, entry.lease)
            error = pause.error if pause else await self._refresh(key, generation)
            lease = (await self._observed(key)).lease
            stays = lease.generation == generation and lease.phase is not Phase.REAUTH_REQUIRED
            if error is not None and stays:
                raise error

    async def require_reauth(self, key: str, generation: int, *, reason: str = "rejected") -> None:
        """The other side no longer accepts the credential of that generation; a person must sign in."""
        check_key(key)
        await self._moved(key, RequireReauth(), generation, reason)

    async def current(self, key: str) -> Credential | None:
        """What there is, good or not, without renewing it; for whoever must know what was sent."""
        entry = await self._observed(key)
        return None if entry.given is None else credential_of(key, entry)

    async def target(self, key: str) -> Ask | None:
        """Where to sign in again, as far as the last credential tells."""
        given = (await self._observed(key)).given
        if given is None or given.url is None:
            return None
        how = given.renewal
        client = how.client if isinstance(how, OAuthRenewal) else None
        scopes = given.scopes
        return Ask(url=given.url, hosts=given.hosts, scopes=scopes, client=client)

    async def sign_in(self, key: str) -> NeedsAnswer:
        """The question to a person."""
        return NeedsAnswer(await self.logins.question(key))

    async def _sign_in(self, key: str, answers: Mapping[str, Answer] | None) -> Exception:
        asked = await self.sign_in(key)
        if answers is None or asked.question.key not in answers:
            return asked
        return PersonError(
            "SIGN_IN_REQUIRED",
            f"Nobody signed in for `{key}`.",
            hint=f"Run `holdfast auth login {key}`, then try again.",
        )

    # -- renewing it ----------------------------------------------------------------------------------

    async def _refresh(self, key: str, generation: int) -> OperatorError | None:
        """Renew it, or wait for whoever does; why there is none."""
        flight = self._flights.get(key)
        if flight is not None:
            await flight.done.wait()
            return flight.error
        flight = self._flights[key] = _Flight()
        try:
            async with self._vault.lock(f"{ENTRY}{key}"):
                flight.error = await self._fly(key, generation)
        finally:
            del self._flights[key]
            flight.done.set()
        return flight.error

    async def _fly(self, key: str, generation: int) -> OperatorError | None:
        entry = await self._fresh(key)
        phase = entry.lease.phase
        if entry.lease.generation != generation or phase in (Phase.RELEASED, Phase.REAUTH_REQUIRED):
            return None  # somebody else was faster
        if phase is Phase.REFRESHING:
            # We hold the lock, so whoever wrote that is dead.
            died = RefreshFailed(generation, permanent=False, now=self._now())
            await self._step(key, died, "refresh_abandoned")
        entry = await self._step(key, BeginRefresh(), "refreshing")
        assert entry.given is not None
        why: TokenRefused | None = None
        try:
            for pause in ATTEMPTS if not live(entry.lease.expires_at, self._now()) else (0.0,):
                await anyio.sleep(pause)
                why = await self._attempt(key, entry.given, generation)
                if why is None or why.permanent:
                    break
        except BaseException as broken:
            with anyio.CancelScope(shield=True):
                await self._failed(key, generation, reason_of(broken), permanent=False)
            raise
        if why is not None:
            after = await self._failed(key, generation, why.reason, permanent=why.permanent)
            self._pauses[key] = self._pause(after, why)
        else:
            self._pauses.pop(key, None)
        return why

    async def _attempt(self, key: str, old: Given, generation: int) -> TokenRefused | None:
        # Shielded where the server may have replaced the refresh token by now: the answer brings the only copy. Whoever
        # gets another credential in any other way may stop waiting for it.
        with anyio.CancelScope(shield=old.single_use):
            try:
                new = await self._renew(old)
            except TokenRefused as why:
                return why
            now = self._now()
            if not live(new.expires_at, now):
                return TokenRefused(old.url or "", "expired_on_arrival", permanent=False)
            self._shown.add(key, new.secrets)
            done = CompleteRefresh(generation, new.expires_at, now)
            try:
                await self._step(key, done, "refreshed", given=new)
            except Rejected:
                pass  # released, or signed in anew, meanwhile: what came is dropped
            return None

    async def _failed(self, key: str, generation: int, reason: str, *, permanent: bool) -> Lease:
        failed = RefreshFailed(generation, permanent, self._now())
        try:
            return (await self._step(key, failed, reason)).lease
        except Rejected:
            return (await self._fresh(key)).lease

    def _pause(self, lease: Lease, why: TokenRefused) -> _Pause:
        longest = MAX_PAUSE_MS if lease.phase is Phase.EXPIRING else 1_000
        wanted = max(why.retry_after_ms or 0, 500 * 2 ** min(lease.attempt, 10))
        return _Pause(self._now() + min(wanted, longest), lease.phase, why)

    def _paused(self, key: str, lease: Lease) -> _Pause | None:
        found = self._pauses.get(key)
        if found is None or found.phase is not lease.phase or found.until <= self._now():
            return None
        return found

    # -- stepping the machine -------------------------------------------------------------------------

    async def _observed(self, key: str) -> Entry:
        """Where the lease stands now, written down if that has changed."""
        entry = await self._load(key)
        lease = entry.lease
        observe = Observe(self._now(), window_of(lease))
        if LEASE.apply(lease, observe).state == lease:
            return entry
        return await self._step(key, observe, "time", durable=False)

    async def _moved(self, key: str, input_: object, generation: int, reason: str) -> None:
        """Take a step, if the credential is still that one and the machine has such a step."""
        try:
            await self._step(key, input_, reason, only=generation)
        except Rejected:
            pass

    async def _load(self, key: str) -> Entry:
        stamp = self._vault.stamp
        known = self._known.get(key)
        if known is not None and known[0] == stamp and stamp is not None:
            return known[1]
        return await self._fresh(key)

    async def _fresh(self, key: str) -> Entry:
        stamp = self._vault.stamp
        return self._learn(key, stamp, Entry.load(await self._vault.get(f"{ENTRY}{key}")))

    def _learn(self, key: str, stamp: object, entry: Entry) -> Entry:
        if entry.given is not None:
            self._shown.add(key, entry.given.secrets)
        self._known[key] = (stamp, entry)
        return entry

    async def _step(
        self,
        key: str,
        input_: object,
        reason: str,
        *,
        given: Given | None = None,
        actor: str = "holdfast",
        only: int | None = None,
        durable: bool = True,
    ) -> Entry:
        """Feed the machine where all processes see it, and put what it says on record."""
        told: list[LeaseChanged] = []
        made: list[Entry] = []

        def change(stored: Value | None) -> Value | None:
            entry = Entry.load(stored)
            if only is not None and entry.lease.generation != only:
                made.append(entry)
                return stored
            stepped = LEASE.apply(entry.lease, input_)
            entry = (entry if given is None else entry.with_(given)).at(stepped.state)
            made.append(entry)
            told.extend(told_of(key, entry.lease, reason, actor) for _ in stepped.effects)
            return entry.dump() if stepped.effects else stored

        with anyio.CancelScope(shield=True):
            await self._vault.change(f"{ENTRY}{key}", change)
            self._learn(key, None, made[-1])
            if told:
                drafts = [Draft.of(one, actor=actor) for one in told]
                await self._journal.append(LEASES, drafts, durable=durable)
        return made[-1]
