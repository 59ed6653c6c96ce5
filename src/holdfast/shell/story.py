"""What is told about one run: to the journal, that it started and how it ended; to its caller, the result."""

from __future__ import annotations

from holdfast.contracts import (
    Body,
    Diagnostic,
    Draft,
    ErrorObject,
    ExternalCallRecord,
    Metrics,
    RunRequest,
    RunResult,
    RunStatus,
    SessionLimits,
    Setup,
    canonical_json,
    new_id,
)
from holdfast.contracts._base import sure
from holdfast.contracts.payload import (
    RunCancelled,
    RunCompleted,
    RunFailed,
    RunStarted,
    SessionCreated,
)
from holdfast.errors import HoldfastError
from holdfast.gate.redact import Redactor
from holdfast.shell.box import Ran


class Story:
    """The records of one run. The first run of a session also tells that the session exists."""

    def __init__(
        self,
        request: RunRequest,
        limits: SessionLimits,
        *,
        session_limits: SessionLimits,
        creates: bool,
        engine: str,
        setup: Setup | None = None,
        toolbox: str | None = None,
        actor: str | None = None,
        run_id: str | None = None,
        named: str | None = None,
        parent: str | None = None,
        call_id: str | None = None,
    ) -> None:
        """`limits` are this run's; with `creates` it is the session's first.

        With `run_id` it is told already; with `named` it will be, under this name.
        """
        self.run_id = run_id or named or new_id("run")
        self.session_limits = session_limits
        self.creates = creates
        self.told = run_id is not None
        """Whether its start is on record."""
        self._request = request
        self._limits = limits
        self._engine = engine
        self._setup = setup
        self._toolbox = toolbox
        self.actor = actor
        self.parent = parent
        """The agent's run that wrote the code."""
        self._call_id = call_id

    @property
    def code(self) -> str:
        """What is run."""
        return self._request.code

    @property
    def pending(self) -> int:
        """How many records `end` would give now."""
        return 1 + (self.creates and not self.told)

    def start(self) -> list[Draft]:
        """That it started, unless that was told before."""
        if self.told:
            return []
        self.told = True
        started, bodies = self._started()
        return [*self._created(), Draft.of(started, run_id=self.run_id, bodies=bodies)]

    def end(self, ran: Ran, result: RunResult) -> list[Draft]:
        """How it ended; and how it started, unless that was told before."""
        body = Body.of(result.model_dump_json().encode(), role="result", mime="application/json")
        start, bodies = (None, ()) if self.told else self._started()
        if ran.error is None:
            said = RunCompleted(result=body.ref.digest, metrics=result.metrics, start=start)
        else:
            said = RunFailed(
                status=ran.status,
                error=result.error or ran.error,
                result=body.ref.digest,
                metrics=result.metrics,
                state_kept=ran.state_kept and not ran.refused,
                start=start,
            )
        created = [] if self.told else self._created()
        return [*created, Draft.of(said, run_id=self.run_id, bodies=(*bodies, body))]

    def cancelled(
        self, reason: str | None = None, *, calls: int = 0, agent: bool = False
    ) -> list[Draft]:
        """That it was stopped from outside, after so many calls; `agent`: it was an agent's."""
        start, bodies = (None, ()) if self.told else self._started()
        said = RunCancelled(
            status=RunStatus.CANCELLED,
            error=was_cancelled(reason, agent=agent),
            metrics=Metrics(external_calls_count=calls),
            state_kept=agent,
            start=start,
        )
        created = [] if self.told else self._created()
        return [*created, Draft.of(said, run_id=self.run_id, bodies=bodies)]

    def _created(self) -> list[Draft]:
        if not self.creates:
            return []
        said = SessionCreated(
            language=self._request.language,
            limits=self.session_limits,
            engine=self._engine,
            setup=self._setup,
        )
        return [Draft.of(said)]

    def _started(self) -> tuple[RunStarted, tuple[Body, ...]]:
        request = self._request
        code = Body.of(request.code.encode(), role="code", mime="text/x-python")
        bodies, inputs = (code,), None
        if request.inputs:
            body = Body.of(canonical_json(request.inputs), role="inputs", mime="application/json")
            bodies, inputs = (code, body), body.ref.digest
        said = RunStarted(
            kind="code",
            language=request.language,
            limits=None if self._limits == self.session_limits else self._limits,
            code=code.ref.digest,
            inputs=inputs,
            toolbox=self._toolbox,
            plan=request.plan_id,
            actor=self.actor,
            parent=self.parent,
            call_id=self._call_id,
            return_snapshot=request.return_snapshot,
        )
        return said, bodies


def was_cancelled(reason: str | None = None, *, agent: bool = False) -> ErrorObject:
    """What the caller of a cancelled run is told; `agent`: of one that had a conversation."""
    why = f": {reason}" if reason else ""
    hint = "The session is as it was before it; run the code again if it is still wanted."
    if agent:
        hint = "What was said and done so far stays; ask again to go on from there."
    return ErrorObject(code="CANCELLED", message=f"The run was cancelled{why}.", hint=hint)


def interrupted(run_id: str) -> Draft:
    """That a run died with its process."""
    error = ErrorObject(
        code="INTERRUPTED",
        message="The process that ran this code died before it ended.",
        hint="The session is as it was before the run; run the code again if it is still wanted.",
    )
    said = RunFailed(status=RunStatus.INTERRUPTED, error=error, metrics=Metrics(), state_kept=False)
    return Draft.of(said, run_id=run_id)


def result_of(
    run_id: str,
    ran: Ran,
    warning: Diagnostic | None,
    calls: tuple[ExternalCallRecord, ...] | None = None,
) -> RunResult:
    """What the caller of a run gets; `calls` are all of its calls, where the box did not answer every one."""
    metrics = ran.metrics
    if calls is None:
        calls = tuple([record for _, record in ran.calls])
    elif len(calls) != metrics.external_calls_count:
        metrics = metrics.model_copy(update={"external_calls_count": len(calls)})
    return sure(
        RunResult,
        status=ran.status,
        result=ran.value,
        stdout=ran.stdout,
        stderr=ran.stderr,
        diagnostics=ran.diagnostics if warning is None else (*ran.diagnostics, warning),
        external_calls=calls,
        metrics=metrics,
        error=ran.error,
        run_id=run_id,
    )


def with_calls(result: RunResult, calls: tuple[ExternalCallRecord, ...]) -> RunResult:
    """A result that tells of these calls."""
    metrics = result.metrics.model_copy(update={"external_calls_count": len(calls)})
    return result.model_copy(update={"external_calls": calls, "metrics": metrics})


def cleaned(redactor: Redactor, result: RunResult) -> RunResult:
    """The result without any secret that the code has put together by itself."""
    if not redactor.names:
        return result
    told = result.model_dump(mode="json")
    clean = redactor.json(told)
    return result if clean is told else RunResult.model_validate(clean)


def failed(error: HoldfastError) -> RunResult:
    """The result of a request that was refused before anything ran."""
    told = ErrorObject.of(error)
    return RunResult(
        status=RunStatus(error.status), diagnostics=(Diagnostic.error(told),), error=told
    )
