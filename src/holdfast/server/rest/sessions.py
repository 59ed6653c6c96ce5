"""Sessions: make, look at, run code in, save, put back, fork, empty, stop, end."""

from __future__ import annotations

from functools import partial
from typing import Any

from holdfast.contracts import (
    RunResult,
    SessionView,
    check_session_id,
    new_id,
)
from holdfast.errors import CallerError
from holdfast.server import views
from holdfast.server.cancelling import cancel_session as stopped
from holdfast.server.rest import bodies as b
from holdfast.server.rest import examples as eg
from holdfast.server.rest.endpoint import Answer, Call, Endpoint
from holdfast.server.rest.later import outcome
from holdfast.server.rest.listing import Listed, Paged, seen
from holdfast.server.rights import check_within


async def _name(call: Call) -> str:
    """The session of a path, if it is the caller's."""
    name = check_session_id(call.path["session_id"])
    await call.mine(name)
    return name


async def within_rights(call: Call) -> None:
    """Refuse what would widen what a session may do: mounts, hosts, modules and greater limits are the operator's."""
    try:
        check_within(call.body, call.caller, call.hf.shell.services)
    except CallerError as why:
        await call.refuse(why.code)
        raise


async def list_sessions(call: Call) -> Any:
    """Open sessions, by name."""
    shell = call.hf.shell
    return await seen(
        call,
        lambda after, limit: shell.list(after=after, limit=limit),
        key=lambda one: one.id,
        session=lambda one: one.id,
    )


async def create_session(call: Call) -> Any:
    """Make an empty session; one that is there already is left as it is."""
    asked: b.CreateSession = call.body
    await within_rights(call)
    name = asked.session_id or f"{call.caller.prefix or ''}{new_id('ses')}"[:64]
    await call.mine(check_session_id(name))
    _language(asked.language)
    return await call.hf.shell.create(name, language=asked.language, setup=asked.setup)


async def show_session(call: Call) -> Any:
    """One session, also one that has ended."""
    return await call.hf.shell.show(await _name(call))


async def delete_session(call: Call) -> Any:
    """End a session and erase what it held; the record that it was stays."""
    name = await _name(call)
    await call.hf.shell.destroy(name, wait_ms=call.query.wait_ms)
    return await call.hf.shell.show(name)


async def run_code(call: Call) -> Any:
    """Run code in a session, which is created on first use."""
    asked: b.RunCode = call.body
    name = await _name(call)
    _language(asked.language)
    await within_rights(call)
    fields: dict[str, Any] = {
        "session": name,
        "inputs": asked.inputs,
        "limits": asked.limits,
        "timeout_ms": asked.timeout_ms,
        "language": asked.language,
        "return_snapshot": asked.return_snapshot,
        "validate_only": asked.validate_only,
        "dry_run": asked.dry_run,
        "plan": asked.plan_id,
        "setup": asked.setup,
        "actor": call.caller.id,
        "wait_ms": asked.wait_ms,
        "durable": True,
    }
    if asked.validate_only or asked.dry_run:
        return await call.once(partial(call.hf.shell.run, asked.code, **fields))
    run_id, again = await call.keys.run(call.key, name, actor=call.caller.id)
    run = partial(call.hf.shell.run, asked.code, run_id=run_id, **fields)
    return await outcome(call, run_id, name, run, again=again)


async def snapshot_session(call: Call) -> Any:
    """What is in a session, sealed, to be kept or put into another session."""
    name = await _name(call)
    data = await call.hf.shell.snapshot(name, wait_ms=call.body.wait_ms)
    return views.snapshot(name, data)


async def restore_session(call: Call) -> Any:
    """Put a snapshot into a session, which is created if need be, in place of what is there."""
    asked: b.RestoreSession = call.body
    name = await _name(call)
    await within_rights(call)
    data = views.snapshot_bytes(asked.snapshot)
    return await call.hf.shell.restore(name, data, setup=asked.setup, wait_ms=asked.wait_ms)


async def fork_session(call: Call) -> Any:
    """Another session that goes on from where this one is, or was."""
    asked: b.ForkSession = call.body
    name = await _name(call)
    await call.mine(check_session_id(asked.new_session_id))
    found = await call.hf.shell.fork(name, asked.new_session_id, at=asked.at, wait_ms=asked.wait_ms)
    return Answer(found, 201, {"Location": f"/v1/sessions/{found.id}"})


async def reset_session(call: Call) -> Any:
    """Empty a session: its variables and functions are gone, its history stays."""
    return await call.hf.shell.reset(await _name(call), wait_ms=call.body.wait_ms)


async def cancel_session(call: Call) -> Any:
    """Stop what runs in a session."""
    asked: b.CancelSession = call.body
    name = await _name(call)
    done = await stopped(call.hf, call.work, name, mode=asked.mode, run_id=asked.run_id)
    return {"session_id": name, "cancelled": done}


def _language(name: str) -> None:
    if name not in ("python", "typescript"):
        raise CallerError(
            "INVALID_ARGUMENT", f"`{name[:80]}` is no language.", hint="python, or typescript."
        )


SESSIONS = (
    Endpoint(
        "GET", "/v1/sessions", list_sessions, "read", "List sessions", Listed[SessionView], query=Paged,
        gives=eg.listed(eg.SESSION),
    ),
    Endpoint(
        "POST",
        "/v1/sessions",
        create_session,
        "run",
        "Make a session",
        SessionView,
        body=b.CreateSession,
        keyed=True,
        errors=(404, 409),
        example={"session_id": "notes"},
        gives=eg.SESSION,
    ),
    Endpoint(
        "GET", "/v1/sessions/{session_id}", show_session, "read", "Show a session", SessionView,
        errors=(404,), gives=eg.SESSION,
    ),
    Endpoint(
        "DELETE",
        "/v1/sessions/{session_id}",
        delete_session,
        "run",
        "End a session",
        SessionView,
        query=b.InSession,
        errors=(404, 409),
        gives=eg.DESTROYED,
    ),
    Endpoint(
        "POST",
        "/v1/sessions/{session_id}/run",
        run_code,
        "run",
        "Run code",
        RunResult,
        about="Failing code, like code that waits for a person, is an answer with 200: see `status`. "
        "A run that takes longer than `wait_ms` goes on, and the answer is 202.",
        query=b.Waiting,
        body=b.RunCode,
        later=True,
        errors=(404, 409),
        example={"code": "print('hello')\n1 + n", "inputs": {"n": 2}},
        gives=eg.RESULT,
    ),
    Endpoint(
        "POST",
        "/v1/sessions/{session_id}/snapshot",
        snapshot_session,
        "run",
        "Save what is in a session",
        b.Snapshot,
        body=b.InSession,
        keyed=True,
        errors=(404, 409),
        gives=eg.SNAPSHOT,
    ),
    Endpoint(
        "POST",
        "/v1/sessions/{session_id}/restore",
        restore_session,
        "run",
        "Put a snapshot into a session",
        SessionView,
        body=b.RestoreSession,
        keyed=True,
        errors=(404, 409),
        example={"snapshot": eg.SNAPSHOT.snapshot},
        gives=eg.SESSION,
    ),
    Endpoint(
        "POST",
        "/v1/sessions/{session_id}/fork",
        fork_session,
        "run",
        "Make another session of one",
        SessionView,
        body=b.ForkSession,
        status=201,
        keyed=True,
        errors=(404, 409),
        example={"new_session_id": "notes-2"},
        gives=eg.FORKED,
    ),
    Endpoint(
        "POST",
        "/v1/sessions/{session_id}/reset",
        reset_session,
        "run",
        "Empty a session",
        SessionView,
        body=b.InSession,
        keyed=True,
        errors=(404, 409),
        gives=eg.SESSION,
    ),
    Endpoint(
        "POST",
        "/v1/sessions/{session_id}/cancel",
        cancel_session,
        "run",
        "Stop what runs in a session",
        b.Cancelled,
        body=b.CancelSession,
        keyed=True,
        errors=(404, 409),
        gives=eg.CANCELLED,
    ),
)  # fmt: skip
