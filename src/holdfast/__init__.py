"""The runtime an AI agent can be trusted with."""

# General layout:
#
#   errors        one tree of errors, each with a stable code
#   contracts/    what goes over a wire or onto disk: frozen, typed, versioned
#   machines/     lifecycles as tables: pure, no clock, no I/O
#   journal/      the append-only truth
#   gate/         the only door to the outside world; to understand holdfast, read gate/gate.py
#   shell/        sandboxed code sessions: run, pause at a call, resume elsewhere
#   capabilities/ models/ resources/ leases/     what the gate leads to
#   agent/        the turn loop
#   peers/ live/  agents talking to agents, and to people
#   runtime/      puts it together; runtime/wiring.py alone picks concrete classes
#   server/ cli/  views of the same journal
#   testing/      public helpers for tests; nothing here imports it
#
# A file imports from lower layers only; `make lint` checks it (layers in pyproject.toml).
#
# This module only names the public API. Every name is imported on first use, so `import holdfast`
# costs next to nothing, and a program pays for the parts it touches.

from importlib import import_module
from typing import TYPE_CHECKING

from holdfast._version import __version__

if TYPE_CHECKING:
    from holdfast.capabilities import capability
    from holdfast.contracts import (
        ApprovalDecision,
        ApprovalPolicy,
        ApprovalRequest,
        ApprovalView,
        Budget,
        CallStatus,
        Capability,
        CapabilityLimits,
        ContentRef,
        Database,
        Decision,
        Diagnostic,
        Draft,
        EffectIntent,
        EffectKind,
        EffectResult,
        EffectStatus,
        ErrorObject,
        ExternalCallRecord,
        Language,
        Metrics,
        Mount,
        Privacy,
        Record,
        Retention,
        Risk,
        Rule,
        RunRequest,
        RunResult,
        RunStatus,
        SessionLimits,
        SessionMeta,
        Setup,
        Severity,
        SideEffect,
        Span,
    )
    from holdfast.contracts.approval import Asks
    from holdfast.errors import HoldfastError
    from holdfast.gate.executor import Answer, Context, Finding, NeedsAnswer, Question
    from holdfast.gate.hooks import hook
    from holdfast.runtime import Runtime, open
    from holdfast.runtime.agent import Agent, Run
    from holdfast.shell import Shell

__all__ = [
    "__version__",
    # holdfast.errors
    "HoldfastError",
    # holdfast.contracts
    "ApprovalPolicy",
    "CallStatus",
    "Capability",
    "CapabilityLimits",
    "ContentRef",
    "Diagnostic",
    "Draft",
    "EffectIntent",
    "EffectKind",
    "EffectResult",
    "EffectStatus",
    "ErrorObject",
    "ExternalCallRecord",
    "Language",
    "Metrics",
    "Privacy",
    "Record",
    "Retention",
    "RunRequest",
    "RunResult",
    "RunStatus",
    "SessionLimits",
    "SessionMeta",
    "Severity",
    "SideEffect",
    "Span",
    "ApprovalDecision",
    "ApprovalRequest",
    "ApprovalView",
    "Budget",
    "Database",
    "Decision",
    "Mount",
    "Risk",
    "Rule",
    "Setup",
    # holdfast.capabilities
    "capability",
    # holdfast.gate
    "Answer",
    "Asks",
    "Context",
    "Finding",
    "NeedsAnswer",
    "Question",
    "hook",
    # holdfast.runtime
    "Agent",
    "Run",
    "Runtime",
    "open",
    # holdfast.shell
    "Shell",
]

_EXPORTS: dict[str, str] = {
    "HoldfastError": "holdfast.errors",
    "ApprovalPolicy": "holdfast.contracts",
    "CallStatus": "holdfast.contracts",
    "Capability": "holdfast.contracts",
    "CapabilityLimits": "holdfast.contracts",
    "ContentRef": "holdfast.contracts",
    "Diagnostic": "holdfast.contracts",
    "Draft": "holdfast.contracts",
    "EffectIntent": "holdfast.contracts",
    "EffectKind": "holdfast.contracts",
    "EffectResult": "holdfast.contracts",
    "EffectStatus": "holdfast.contracts",
    "ErrorObject": "holdfast.contracts",
    "ExternalCallRecord": "holdfast.contracts",
    "Language": "holdfast.contracts",
    "Metrics": "holdfast.contracts",
    "Privacy": "holdfast.contracts",
    "Record": "holdfast.contracts",
    "Retention": "holdfast.contracts",
    "RunRequest": "holdfast.contracts",
    "RunResult": "holdfast.contracts",
    "RunStatus": "holdfast.contracts",
    "SessionLimits": "holdfast.contracts",
    "SessionMeta": "holdfast.contracts",
    "Severity": "holdfast.contracts",
    "SideEffect": "holdfast.contracts",
    "Span": "holdfast.contracts",
    "ApprovalDecision": "holdfast.contracts",
    "ApprovalRequest": "holdfast.contracts",
    "ApprovalView": "holdfast.contracts",
    "Budget": "holdfast.contracts",
    "Database": "holdfast.contracts",
    "Decision": "holdfast.contracts",
    "Mount": "holdfast.contracts",
    "Risk": "holdfast.contracts",
    "Rule": "holdfast.contracts",
    "Setup": "holdfast.contracts",
    "capability": "holdfast.capabilities",
    "Answer": "holdfast.gate.executor",
    "Asks": "holdfast.contracts.approval",
    "Context": "holdfast.gate.executor",
    "Finding": "holdfast.gate.executor",
    "NeedsAnswer": "holdfast.gate.executor",
    "Question": "holdfast.gate.executor",
    "hook": "holdfast.gate.hooks",
    "Agent": "holdfast.runtime.agent",
    "Run": "holdfast.runtime.agent",
    "Runtime": "holdfast.runtime",
    "open": "holdfast.runtime",
    "Shell": "holdfast.shell",
}


# Hidden from type checkers, which would otherwise believe in any name.
if not TYPE_CHECKING:

    def __getattr__(name: str) -> object:
        if name not in _EXPORTS:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        value = getattr(import_module(_EXPORTS[name]), name)
        globals()[name] = value  # the next use does not come here
        return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
