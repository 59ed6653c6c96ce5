"""A remembered yes: `kernel.md` §4.8."""

from typing import Any

import pytest
from tests.machines.support import (
    after,
    assert_breaks,
    assert_no_transition,
    assert_refused,
    assert_sound,
    assert_table_covered,
    every_step,
    run,
)

from holdfast.contracts.approval import Risk
from holdfast.machines.grant import (
    GRANT,
    ArgsScope,
    Expire,
    Give,
    Grant,
    Grantee,
    Phase,
    RecordGrant,
    RecordGrantEnd,
    RecordPreapproved,
    Revoke,
    SchemaChanged,
    Use,
    in_scope,
)

WHO = Grantee("s", "agent", "send")
GIVE = Give("g", WHO, "schema", Risk.MEDIUM, ArgsScope("exact", "args"), 10, 5)
USE = Use(WHO, "schema", Risk.MEDIUM, "args", None, 9)

ABSENT = Grant()
ACTIVE = after(GRANT, GIVE)
EXPIRED = after(GRANT, Expire("g", 10), state=ACTIVE)
REVOKED = after(GRANT, Revoke("g", "person"), state=ACTIVE)
ENDED = [EXPIRED, REVOKED]


def test_sound():
    assert_sound(GRANT)


def test_given_and_used_as_often_as_wanted():
    state, effects = run(GRANT, GIVE)
    assert effects == (RecordGrant("g"),)
    scope = ArgsScope("exact", "args")
    assert state == Grant(Phase.ACTIVE, "g", WHO, "schema", Risk.MEDIUM, scope, 10)
    used, effects = run(GRANT, USE, USE._replace(risk=Risk.LOW), state=state)
    assert used is state
    assert effects == (RecordPreapproved("g", "args"),) * 2


@pytest.mark.parametrize(
    ("input_", "phase", "reason"),
    [
        (Expire("g", 10), Phase.EXPIRED, "expired"),
        (Revoke("g", "person"), Phase.REVOKED, "revoked"),
        (SchemaChanged("send", "schema 2"), Phase.REVOKED, "schema_changed"),
    ],
)
def test_it_ends_for_good(input_: Any, phase: Phase, reason: Any):
    state, effects = run(GRANT, input_, state=ACTIVE)
    assert state == ACTIVE._replace(phase=phase)
    assert effects == (RecordGrantEnd("g", reason),)


def test_a_changed_schema_takes_the_grant_back():
    changed = after(GRANT, SchemaChanged("send", "schema 2"), state=ACTIVE)
    assert_refused(GRANT, changed, USE, "still_active")
    # Nor does it come back when the schema does.
    assert_refused(
        GRANT, changed, SchemaChanged("send", "schema"), "still_active", "schema_differs"
    )


def test_no_expiry_lasts_with_the_session():
    lasting = after(GRANT, GIVE._replace(expires_at=None))
    assert_refused(GRANT, lasting, Expire("g", 10**15), "expiry_passed")
    assert after(GRANT, USE._replace(now=10**15), state=lasting) is lasting


@pytest.mark.parametrize(
    ("scope", "digest", "path", "expected"),
    [
        (ArgsScope(), "x", None, True),
        (ArgsScope("exact", "d"), "d", None, True),
        (ArgsScope("exact", "d"), "x", "d", False),
        (ArgsScope("under", "/data"), "x", "/data", True),
        (ArgsScope("under", "/data"), "x", "/data/a/b", True),
        (ArgsScope("under", "/data/"), "x", "/data/a", True),
        (ArgsScope("under", "/data"), "x", "/database", False),
        (ArgsScope("under", "/data"), "x", "/other", False),
        (ArgsScope("under", "/data"), "x", "/data/../etc", False),
        (ArgsScope("under", "/data"), "x", None, False),
        (ArgsScope("under", "/"), "x", "/etc", True),
    ],
)
def test_scopes(scope: ArgsScope, digest: str, path: str | None, expected: bool):
    assert in_scope(scope, digest, path) is expected


REFUSALS = [
    (ABSENT, GIVE._replace(grantee=WHO._replace(session_id="")), "has_a_session"),
    (ABSENT, GIVE._replace(risk=Risk.CRITICAL), "not_critical"),
    (ABSENT, GIVE._replace(expires_at=5), "expiry_ahead"),
    *((state, USE, "still_active") for state in ENDED),
    (ACTIVE, USE._replace(grantee=WHO._replace(session_id="other")), "same_session"),
    (ACTIVE, USE._replace(grantee=WHO._replace(agent_id="other")), "same_agent"),
    (ACTIVE, USE._replace(grantee=WHO._replace(tool="other")), "same_tool"),
    (ACTIVE, USE._replace(schema_digest="schema 2"), "schema_unchanged"),
    (ACTIVE, USE._replace(risk=Risk.HIGH), "risk_not_higher"),
    (ACTIVE, USE._replace(risk=Risk.CRITICAL), "risk_not_higher"),
    (ACTIVE, USE._replace(args_digest="more"), "args_in_scope"),
    (ACTIVE, USE._replace(now=10), "before_expiry"),
    (ACTIVE, Expire("other", 10), "grant_matches"),
    (ACTIVE, Expire("g", 9), "expiry_passed"),
    *((state, Expire("g", 10), "still_active") for state in ENDED),
    (ACTIVE, Revoke("other", "person"), "grant_matches"),
    *((state, Revoke("g", "person"), "still_active") for state in ENDED),
    (ACTIVE, SchemaChanged("other", "schema 2"), "about_its_tool"),
    (ACTIVE, SchemaChanged("send", "schema"), "schema_differs"),
    *((state, SchemaChanged("send", "schema 2"), "still_active") for state in ENDED),
]


@pytest.mark.parametrize("case", REFUSALS, ids=lambda case: type(case[1]).__name__)
def test_refusals(case: tuple[Any, ...]):
    assert_refused(GRANT, *case)


@pytest.mark.parametrize(
    "input_", [USE, Expire("g", 10), Revoke("g", "p"), SchemaChanged("send", "x")]
)
def test_nothing_happens_to_what_was_never_given(input_: Any):
    assert_no_transition(GRANT, ABSENT, input_)


def test_a_grant_is_given_once():
    for state in (ACTIVE, *ENDED):
        assert_no_transition(GRANT, state, GIVE)


WHOSE = "a grant says who may call what, in which session"
BROKEN = [
    (ABSENT._replace(grant_id="g"), WHOSE),
    (ACTIVE._replace(grant_id=None), WHOSE),
    (ACTIVE._replace(grantee=None), WHOSE),
    (ACTIVE._replace(grantee=WHO._replace(session_id="")), WHOSE),
    (ACTIVE._replace(risk=Risk.CRITICAL), "a grant is never for critical risk"),
]


@pytest.mark.parametrize("case", BROKEN)
def test_invariants(case: tuple[Grant, str]):
    assert_breaks(GRANT, *case)


def test_nothing_is_left_out():
    assert_table_covered(GRANT, REFUSALS, BROKEN)


def test_nothing_comes_back_to_life():
    for old, _, new, _ in every_step(GRANT):
        assert new.phase is not Phase.ACTIVE or old.phase in (Phase.ABSENT, Phase.ACTIVE)
        if old.phase is not Phase.ABSENT:
            assert new._replace(phase=old.phase) == old
