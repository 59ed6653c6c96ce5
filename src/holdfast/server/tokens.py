"""Tokens: `hf_<id>_<secret>`. Only the digest of a secret is kept, and what happens to a token is on record.

A link for a browser is a token, too, that is good once: taking it and making the browser's own are one append, so of two who try,
the journal lets one in. Revoking counts from the next request on, in every process with this journal, and for what is open
(see `standing`).
"""

from __future__ import annotations

import base64
import secrets
import time
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

from holdfast.contracts import Draft, digest, new_id, parse
from holdfast.contracts.token import (
    TOKENS,
    TokenCreated,
    TokenKind,
    TokenRevoked,
    TokenUsed,
    TokenView,
)
from holdfast.errors import CallerError, HoldfastError, NotFound
from holdfast.journal import Journal

LINK_MS = 5 * 60_000
"""How long a link for a browser is good."""
BROWSER_MS = 7 * 86_400_000
"""How long a browser stays signed in."""
BROWSER = "browser"
"""What a browser is called whose person has no name."""
USED_EVERY = 60_000
"""Milliseconds between two records that a token was used."""

_LOOKED = 10_000
"""Tokens of which is remembered how they were a moment ago."""
_SECRET_BYTES = 32
_LONGEST = 200
_NOBODY = digest(b"nobody has this secret")


class Made(NamedTuple):
    """A new token: the only time that its text is known."""

    view: TokenView
    text: str
    """What its owner sends."""


class Tokens:
    """The tokens of a journal."""

    def __init__(self, journal: Journal, *, now: Callable[[], int] | None = None) -> None:
        self._journal = journal
        self._now = now or _now
        self._noted: dict[str, int] = {}
        self._looked: dict[str, tuple[float, dict[str, Any] | None]] = {}

    # -- making ---------------------------------------------------------------------------------------

    async def create(
        self,
        scopes: Iterable[str],
        *,
        prefix: str | None = None,
        name: str | None = None,
        expires_in_ms: int | None = None,
        kind: TokenKind = "api",
        actor: str = "operator",
    ) -> Made:
        """A new token. `prefix`: the only sessions it sees begin with this; not with `admin`, which is about all."""
        scopes = tuple(scopes)
        if prefix is not None and "admin" in scopes:
            raise CallerError(
                "INVALID_ARGUMENT",
                "`admin` is about the whole host, and can't be had with a prefix.",
                hint="Give a tenant read, run and approve, or leave the prefix out.",
            )
        until = None if expires_in_ms is None else self._now() + expires_in_ms
        made, draft = _made(scopes, prefix, name, until, kind, actor)
        await self._journal.append(TOKENS, [draft])
        return Made(await self.show(made.id), made.text)

    async def link(
        self,
        scopes: Iterable[str] = ("admin",),
        *,
        prefix: str | None = None,
        name: str | None = None,
        actor: str = "operator",
    ) -> str:
        """The text of a link's token: good once, within five minutes, for a browser that gets these rights.

        `name`: the person who comes by it; what they decide is recorded as theirs.
        """
        made = await self.create(
            scopes, prefix=prefix, name=name, kind="link", expires_in_ms=LINK_MS, actor=actor
        )
        return made.text

    async def enter(self, text: str) -> Made:
        """What the browser gets that comes by a link; raises `UNAUTHENTICATED` for one that was used."""
        link = await self._checked(text)
        if link["kind"] != "link":
            raise refused()
        until = self._now() + BROWSER_MS
        name = link.get("name") or BROWSER
        made, draft = _made(
            link["scopes"], link.get("prefix"), name, until, "browser", f"link:{link['id']}"
        )
        taken = Draft.of(TokenRevoked(id=link["id"], reason="used"), actor=f"link:{link['id']}")
        try:
            await self._journal.append(TOKENS, [taken, draft])
        except CallerError as why:
            if why.code != "ILLEGAL_RECORD":
                raise
            raise refused() from None
        return Made(await self.show(made.id), made.text)

    async def rotate(self, token_id: str, *, actor: str = "operator") -> Made:
        """Another token with the same rights in place of one, which counts no more."""
        old = await self._row(token_id)
        made, draft = _made(
            old["scopes"],
            old.get("prefix"),
            old.get("name"),
            old.get("expires_at"),
            old.get("kind", "api"),
            actor,
            replaces=token_id,
        )
        revoked = Draft.of(TokenRevoked(id=token_id, reason="rotated"), actor=actor)
        await self._end([revoked, draft], token_id)
        return Made(await self.show(made.id), made.text)

    async def revoke(self, token_id: str, *, actor: str = "operator") -> TokenView:
        """From now on it counts no more."""
        await self._row(token_id)
        await self._end([Draft.of(TokenRevoked(id=token_id), actor=actor)], token_id)
        return await self.show(token_id)

    async def _end(self, drafts: list[Draft], token_id: str) -> None:
        try:
            await self._journal.append(TOKENS, drafts)
        except CallerError as why:
            if why.code != "ILLEGAL_RECORD":
                raise
            raise CallerError(
                "INVALID_ARGUMENT",
                f"Token `{token_id}` was revoked before.",
                hint="`holdfast token list` shows those that count.",
            ) from None

    # -- looking --------------------------------------------------------------------------------------

    async def list(
        self, *, after: str = "", limit: int = 100, status: str | None = None
    ) -> list[TokenView]:
        """Tokens by id, and so by time; with `status="active"`, those that are not revoked."""
        tag = status if status in ("active", "revoked") else None
        rows = await self._journal.rows("tokens", tag=tag, after=after, limit=limit)
        return [self._view(row.value) for row in rows]

    async def show(self, token_id: str) -> TokenView:
        """One of them."""
        return self._view(await self._row(token_id))

    async def check(self, text: str) -> TokenView:
        """The token of this text; raises `UNAUTHENTICATED`. That it was used is noted."""
        row = await self._checked(text)
        if row["kind"] == "link":
            raise refused()
        view = self._view(row)
        await self._note(view)
        return view

    async def counts(self, token_id: str, *, stale_ms: int = 0) -> bool:
        """Whether a token that was checked still counts; that it was revoked is known `stale_ms` later at the latest."""
        now = time.monotonic()
        looked, row = self._looked.get(token_id, (0.0, None))
        if row is None or now - looked >= stale_ms / 1000:
            try:
                row = await self._journal.row("tokens", token_id)
            except HoldfastError:
                return False  # nobody can tell; who comes back is told why
            if len(self._looked) >= _LOOKED:
                self._looked.clear()
            self._looked[token_id] = (now, row)
        return row is not None and self._status(row) == "active"

    async def _checked(self, text: str) -> dict[str, Any]:
        """The row of a token that counts. It takes as long for one that is not there as for a wrong secret."""
        tag, _, rest = text[:_LONGEST].partition("_")
        number, _, secret = rest.partition("_")
        row: dict[str, Any] | None = None
        if tag == "hf" and number.isalnum() and number.isascii():
            row = await self._journal.row("tokens", f"tok_{number}")
        known = _NOBODY if row is None else str(row["secret"])
        right = secrets.compare_digest(digest(secret.encode(errors="replace")), known)
        if row is None or not right or self._status(row) != "active":
            raise refused()
        return {"kind": "api", **row}

    async def _note(self, view: TokenView) -> None:
        """Write down that it was used, at most once a minute."""
        now = self._now()
        last = self._noted.get(view.id, view.last_used_at or 0)
        if now - last < USED_EVERY:
            return
        self._noted[view.id] = now
        try:
            await self._journal.append(TOKENS, [Draft.of(TokenUsed(id=view.id))], durable=False)
        except HoldfastError:
            pass  # revoked in this very moment, or the journal is in trouble: the request itself will tell

    async def _row(self, token_id: str) -> dict[str, Any]:
        row = await self._journal.row("tokens", token_id)
        if row is None:
            raise NotFound(
                "NOT_FOUND",
                f"There is no token `{token_id[:80]}`.",
                hint="`holdfast token list` names those there are.",
            )
        return row

    def _status(self, row: dict[str, Any]) -> str:
        if row["revoked_at"] is not None:
            return "revoked"
        until = row.get("expires_at")
        return "expired" if until is not None and until <= self._now() else "active"

    def _view(self, row: dict[str, Any]) -> TokenView:
        return TokenView.model_validate(
            {**row, "status": self._status(row), "created_by": row["by"]}
        )


class _Made(NamedTuple):
    id: str
    text: str


def _made(
    scopes: Iterable[str],
    prefix: str | None,
    name: str | None,
    expires_at: int | None,
    kind: TokenKind,
    actor: str,
    *,
    replaces: str | None = None,
) -> tuple[_Made, Draft]:
    """A token's text, and the record of it, which does not hold that."""
    given = tuple(dict.fromkeys(scopes))
    if not given:
        raise CallerError(
            "INVALID_ARGUMENT",
            "A token needs a scope.",
            hint="Scopes: read, run, approve, admin.",
        )
    id_ = new_id("tok")
    secret = base64.urlsafe_b64encode(secrets.token_bytes(_SECRET_BYTES)).rstrip(b"=")
    said = parse(
        TokenCreated,
        {
            "id": id_,
            "secret": digest(secret),
            "scopes": given,
            "prefix": prefix,
            "kind": kind,
            "name": name,
            "expires_at": expires_at,
            "replaces": replaces,
            "by": actor,
        },
    )
    text = f"hf_{id_.removeprefix('tok_')}_{secret.decode()}"
    return _Made(id_, text), Draft.of(said, actor=actor)


def refused() -> CallerError:
    """The refusal of whoever has no token that counts. It does not tell what is wrong with it."""
    return CallerError(
        "UNAUTHENTICATED",
        "This needs a token that counts.",
        hint="Send `Authorization: Bearer hf_…`; `holdfast token create --scope read` makes one.",
    )


def _now() -> int:
    return time.time_ns() // 1_000_000
