"""What questions to models cost: as the agent declares it, else as the model or the list of prices knows it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from holdfast.contracts.model import ModelPrice, ModelUsage
from holdfast.errors import CallerError, HoldfastError
from holdfast.gate.budgets import Purse
from holdfast.models.base import Model
from holdfast.models.catalog import estimate

Prices = Mapping[str, ModelPrice]
"""What an agent declares, by the model's id."""


def estimated(prices: Prices, model: Model, sent: int, answer: int) -> int | None:
    """What a question costs at most if it uses so many tokens, in millionths of a US dollar; `None`: nobody knows."""
    declared = prices.get(model.id)
    if declared is not None:
        return declared.cost(sent, answer)
    own: Callable[[int, int], int | None] | None = getattr(model, "estimate", None)
    if own is not None:
        return own(sent, answer)
    try:
        return estimate(model.id, sent, answer)
    except HoldfastError:  # a model of the caller's own, under a name that looks like a provider's
        return None


def priced(prices: Prices, model: Model, usage: ModelUsage) -> ModelUsage:
    """What was used, with what it cost where the agent declares that: it knows better than a list."""
    declared = prices.get(model.id)
    if declared is None or not usage.tokens:
        return usage
    cost = declared.cost(usage.input_tokens, usage.output_tokens)
    return usage.model_copy(update={"cost_micros": cost})


def check_prices(prices: Prices, models: Sequence[Model], purses: Sequence[Purse]) -> None:
    """Refuse a limit on money that would not hold: one on a model whose price nobody knows."""
    purse = next((one for one in purses if one.limits("cost_micros")), None)
    if purse is None:
        return
    for model in models:
        if estimated(prices, model, 1_000, 1_000) is None:
            raise CallerError(
                "PRICE_UNKNOWN",
                f"Money of {purse.of} is limited, and nobody knows what `{model.id}` costs.",
                hint=f"Declare it, as in `prices={{{model.id!r}: {{'input_micros': …, 'output_micros': …}}}}`"
                " (for a million tokens; 0 if it is free), or limit `tokens` instead.",
            )
