"""Budgets of agents' runs: each run's own, and accounts that many runs use up together, in any session and process."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from holdfast.contracts import Draft, parse
from holdfast.contracts.agent import AccountOpened
from holdfast.contracts.policy import Budget
from holdfast.errors import CallerError, NotFound
from holdfast.gate.budgets import ACCOUNT, Ledger, Purse
from holdfast.journal import Journal


async def open_account(journal: Journal, account: str, budget: Budget | Mapping[str, Any]) -> None:
    """Let runs that name this account use it up together; opened again, it has these limits instead."""
    if not account.strip():
        raise CallerError(
            "INVALID_ARGUMENT",
            "An account needs a name.",
            hint="Give it one that its runs can say: `agent.run(…, account=…)`.",
        )
    said = AccountOpened(account=f"{ACCOUNT}{account}", budget=parse(Budget, budget))
    await journal.append(said.account, [Draft.of(said)])


async def purses_of(
    journal: Journal, run_id: str, own: Budget | None, account: str | None
) -> tuple[Purse, ...]:
    """The run's own budget, and the one it shares with others."""
    found: list[Purse] = []
    if own is not None:
        key = f"run:{run_id}"
        ledger = Ledger.of(await journal.row("budgets", key))
        found.append(Purse(own, ledger, of="the run", account=key))
    if account is not None:
        found.append(await _account(journal, account))
    return tuple(found)


async def _account(journal: Journal, account: str) -> Purse:
    key = f"{ACCOUNT}{account}"
    row = await journal.row("budgets", key)
    if row is None or "limits" not in row:
        raise NotFound(
            "NOT_FOUND",
            f"There is no account `{account[:80]}`.",
            hint="Open it with its budget first: `hf.agents.open_account`.",
        )
    budget = Budget.model_validate(row["limits"])
    return Purse(budget, Ledger.of(row), of=f"account `{account}`", account=key)
