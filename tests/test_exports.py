"""The public names of `holdfast`, and what it costs to import it."""

import json
import subprocess
import sys

import pytest

import holdfast

PUBLIC = {
    "__version__",
    # errors
    "HoldfastError",
    # contracts
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
    # running things
    "Agent",
    "Run",
    "Runtime",
    "open",
    "Shell",
    # what code may call, and who may say no
    "ApprovalDecision",
    "ApprovalRequest",
    "ApprovalView",
    "Answer",
    "Asks",
    "Budget",
    "Context",
    "Database",
    "Decision",
    "Finding",
    "Mount",
    "NeedsAnswer",
    "Question",
    "Risk",
    "Rule",
    "Setup",
    "capability",
    "hook",
}

# Whatever is slow to import, or that only some programs need.
HEAVY = {
    "anthropic",
    "anyio",
    "apsw",
    "asyncio",
    "google",
    "httpx",
    "mcp",
    "openai",
    "pydantic",
    "pydantic_ai",
    "pydantic_monty",
    "rich",
    "starlette",
    "typer",
}


def imported_by(statement: str) -> set[str]:
    """The modules that a fresh interpreter has loaded after `statement`, beyond its own."""
    program = f"""
import json, sys
before = set(sys.modules)
{statement}
print(json.dumps(sorted(set(sys.modules) - before)))
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, check=True)
    return set(json.loads(done.stdout))


def test_public_names_are_pinned():
    assert set(holdfast.__all__) == PUBLIC
    assert len(holdfast.__all__) == len(PUBLIC)


@pytest.mark.parametrize("name", sorted(PUBLIC))
def test_public_name_is_importable(name: str):
    assert getattr(holdfast, name) is not None
    assert name in dir(holdfast)


def test_unknown_name_is_an_attribute_error():
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        _ = holdfast.nothing  # pyright: ignore[reportAttributeAccessIssue]


def test_import_is_lazy():
    loaded = imported_by("import holdfast")
    assert {name for name in loaded if name.startswith("holdfast")} == {
        "holdfast",
        "holdfast._version",
    }
    assert not HEAVY & {name.partition(".")[0] for name in loaded}
