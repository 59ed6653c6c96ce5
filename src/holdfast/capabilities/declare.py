"""`@capability`: a Python function becomes something code in a box may call."""

from __future__ import annotations

import functools
import inspect
import os.path
from collections.abc import Awaitable, Callable, Mapping
from types import CodeType
from typing import Any, Generic, Literal, ParamSpec, TypeVar, cast, overload

import anyio
from anyio import to_thread
from anyio.lowlevel import RunVar
from pydantic import ValidationError

from holdfast.capabilities._contract import Contract
from holdfast.capabilities._docstring import documented
from holdfast.capabilities._names import check_name
from holdfast.capabilities._signature import Signature, first_problem
from holdfast.contracts import (
    AutoApproval,
    Capability,
    Json,
    Risk,
    SideEffect,
    parse,
)
from holdfast.errors import CallerError
from holdfast.gate.executor import Context, Finding

P = ParamSpec("P")
R = TypeVar("R")

Approval = Literal["none", "manual"] | str | Mapping[str, Any] | AutoApproval
"""`"none"`, `"manual"`, or ask unless a rule says the call is fine: `"auto:<rule>"`, `{"auto": {"rule": "…"}}`."""

SideEffectName = Literal["none", "read", "write", "network", "database", "external_system"]
RiskName = Literal["low", "medium", "high", "critical"]

Reconciler = Callable[..., Any]
"""Finds out what became of an effect in doubt: takes the arguments and the `Context`, or the `Context` alone."""

_AUTO = "auto:"


class Declared(Contract, Generic[P, R]):
    """A function that code may call: the gate's view of it, and still the function itself."""

    reconciles: bool

    def __init__(
        self,
        function: Callable[P, R],
        capability: Capability,
        signature: Signature,
        reconcile: Reconciler | None = None,
    ) -> None:
        super().__init__(capability)
        functools.update_wrapper(self, function)
        self.function = function
        self.reconciles = reconcile is not None
        self._signature = signature
        self._reconcile = reconcile
        self._checked: tuple[Mapping[str, Json], dict[str, Any]] | None = None
        self._async = _is_async(function)
        self._whole = reconcile is not None and _takes_arguments(reconcile, capability.name)
        self._threads: RunVar[anyio.CapacityLimiter] = RunVar(f"threads of {capability.name}")

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        return self.function(*args, **kwargs)

    def __repr__(self) -> str:
        return f"<capability {self.capability.name} of {self.origin}>"

    @property
    def origin(self) -> str:
        """Where it comes from: module and name of the function."""
        module = getattr(self.function, "__module__", None) or "?"
        return f"{module}:{getattr(self.function, '__qualname__', self.capability.name)}"

    @property
    def place(self) -> object:
        """Where its function is written, and what it promises: the same in two modules that are one file."""
        function = inspect.unwrap(self.function)
        code: CodeType | None = getattr(function, "__code__", None)
        if code is None or "<locals>" in getattr(function, "__qualname__", ""):
            return super().place  # what is made on the way is not known by its line
        return os.path.realpath(code.co_filename), code.co_firstlineno, self.capability.digest

    def check(self, arguments: Mapping[str, Json]) -> None:
        """Raise `INVALID_ARGUMENT` unless the arguments match the input schema and the function's types."""
        if self._signature.fits(arguments):
            self._checked = (arguments, dict(arguments))
            return
        super().check(arguments)
        try:
            self._checked = (arguments, self._signature.arguments(arguments))
        except ValidationError as error:
            raise self._unfit(*first_problem(error)) from None

    async def execute(self, arguments: Mapping[str, Json], context: Context) -> Json:
        """Call the function, once: on the event loop if it is asynchronous, else in a thread."""
        checked, self._checked = self._checked, None
        try:
            # What was converted for the check need not be again; but it is used once, for it may be changed.
            same = checked is not None and checked[0] is arguments
            named = checked[1] if checked is not None and same else None
            args, kwargs = self._signature.call(arguments, context, named)
        except ValidationError as error:
            raise self._unfit(*first_problem(error)) from None
        function: Callable[..., Any] = self.function
        given = (
            function(*args, **kwargs) if self._async else self._called(function, *args, **kwargs)
        )
        return self._signature.result(await given)

    async def reconcile(self, arguments: Mapping[str, Json], context: Context) -> Finding:
        """Ask the function given as `reconcile` what became of an effect.

        What it returns is the result of an effect that happened; `None` says that it can't tell.
        """
        if self._reconcile is None:
            return Finding("unknown")
        given = (dict(arguments), context) if self._whole else (context,)
        found = await self._called(self._reconcile, *given)
        if not isinstance(found, Finding):
            return Finding("unknown") if found is None else self._happened(found)
        return self._happened(found.value) if found.status == "completed" else found

    def _happened(self, value: Any) -> Finding:
        return Finding("completed", self._signature.result(value))

    async def _called(self, function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        if self._async if function is self.function else _is_async(function):
            return await cast("Awaitable[Any]", function(*args, **kwargs))
        call = functools.partial(function, *args, **kwargs)
        # A thread can't be stopped; whoever gives up on it goes on without it.
        found = await to_thread.run_sync(call, abandon_on_cancel=True, limiter=self._limiter())
        return await found if inspect.isawaitable(found) else found

    def _limiter(self) -> anyio.CapacityLimiter:
        """Threads of its own: a function that hangs takes none away from others."""
        found = self._threads.get(None)
        if found is None:
            found = anyio.CapacityLimiter(self.capability.limits.concurrency)
            self._threads.set(found)
        return found


@overload
def capability(function: Callable[P, R], /) -> Declared[P, R]: ...


@overload
def capability(
    function: Callable[P, R],
    /,
    *,
    name: str | None = None,
    description: str | None = None,
    side_effect: SideEffect | SideEffectName = "none",
    approval: Approval = "none",
    idempotent: bool = False,
    reconcile: Reconciler | None = None,
    risk: Risk | RiskName | None = None,
    cost_micros: int = 0,
    timeout_ms: int | None = None,
    max_request_bytes: int | None = None,
    max_response_bytes: int | None = None,
    concurrency: int | None = None,
    rate_per_min: int | None = None,
) -> Declared[P, R]: ...


@overload
def capability(
    *,
    name: str | None = None,
    description: str | None = None,
    side_effect: SideEffect | SideEffectName = "none",
    approval: Approval = "none",
    idempotent: bool = False,
    reconcile: Reconciler | None = None,
    risk: Risk | RiskName | None = None,
    cost_micros: int = 0,
    timeout_ms: int | None = None,
    max_request_bytes: int | None = None,
    max_response_bytes: int | None = None,
    concurrency: int | None = None,
    rate_per_min: int | None = None,
) -> Callable[[Callable[P, R]], Declared[P, R]]: ...


def capability(
    function: Callable[..., Any] | None = None,
    /,
    *,
    name: str | None = None,
    description: str | None = None,
    side_effect: SideEffect | SideEffectName = "none",
    approval: Approval = "none",
    idempotent: bool = False,
    reconcile: Reconciler | None = None,
    risk: Risk | RiskName | None = None,
    cost_micros: int = 0,
    timeout_ms: int | None = None,
    max_request_bytes: int | None = None,
    max_response_bytes: int | None = None,
    concurrency: int | None = None,
    rate_per_min: int | None = None,
) -> Any:
    """Declare a function that code may call: schemas from its type hints, description from its docstring.

    Works with and without parentheses, on plain and `async` functions and on bound methods. A parameter of
    type `Context` gets the call's context and is not shown to the code. Raises `INVALID_ARGUMENT` for what
    can't be expressed in JSON Schema, `INVALID_TOOL_NAME` for a name that code can't call it by.
    """
    # For hints that name what is defined beside a function within a function.
    here = inspect.currentframe()
    namespace = dict(here.f_back.f_locals) if here is not None and here.f_back is not None else {}
    limits = {
        "timeout_ms": timeout_ms,
        "max_request_bytes": max_request_bytes,
        "max_response_bytes": max_response_bytes,
        "concurrency": concurrency,
        "rate_per_min": rate_per_min,
    }
    fixed: dict[str, Any] = {
        "limits": {field: value for field, value in limits.items() if value is not None},
        "side_effect": side_effect,
        "approval_policy": _approval(approval),
        "idempotent": idempotent,
        "risk": risk,
        "cost_micros": cost_micros,
    }

    if description is not None:
        fixed["description"] = description

    def declare(function: Callable[..., Any]) -> Declared[..., Any]:
        return _declared(function, name, fixed, reconcile, namespace)

    return declare if function is None else declare(function)


def _declared(
    function: Callable[..., Any],
    name: str | None,
    fixed: Mapping[str, Any],
    reconcile: Reconciler | None,
    namespace: dict[str, Any],
) -> Declared[..., Any]:
    """The capability that a function becomes; `fixed` is what its declaration says, its signature says the rest."""
    called = check_name(name or _name_of(function))
    _check_callable(function, called)
    said = documented(inspect.getdoc(function))
    signature = Signature(function, called, said, namespace)
    made = parse(
        Capability,
        {
            "description": said.text,
            **fixed,
            "name": called,
            "input_schema": signature.input_schema,
            "output_schema": signature.output_schema,
            "asynchronous": _is_async(function),
        },
    )
    return Declared(function, made, signature, reconcile)


def _name_of(function: Callable[..., Any]) -> str:
    inner: Any = function
    while (found := getattr(inner, "func", None)) is not None:
        inner = found  # `functools.partial`
    return getattr(inner, "__name__", type(inner).__name__)


def _check_callable(function: object, name: str) -> None:
    why = None
    if isinstance(function, Declared):
        why = "is a capability already"
    elif not callable(function) or inspect.isclass(function):
        why = "is no function"
    elif inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function):
        why = "is a generator"
    if why is not None:
        raise CallerError(
            "INVALID_ARGUMENT",
            f"`{name}` can't be declared a capability: it {why}.",
            hint="Declare a function that returns its result as a whole.",
        )


def _is_async(function: Any) -> bool:
    if inspect.iscoroutinefunction(function):
        return True
    # An object that can be called: what its class does decides.
    return not inspect.isroutine(function) and inspect.iscoroutinefunction(type(function).__call__)


def _approval(given: Approval) -> Any:
    if isinstance(given, str) and given.startswith(_AUTO):
        return {"auto": {"rule": given.removeprefix(_AUTO).strip()}}
    return given


def _takes_arguments(reconcile: Reconciler, name: str) -> bool:
    try:
        wanted = len(inspect.signature(reconcile).parameters)
    except (ValueError, TypeError):
        wanted = 0
    if wanted in (1, 2):
        return wanted == 2
    raise CallerError(
        "INVALID_ARGUMENT",
        f"The `reconcile` of `{name}` takes {wanted} parameters.",
        hint="It takes the arguments and the `Context`, or the `Context` alone.",
    )
