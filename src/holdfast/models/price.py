"""What a model call costs, in millionths of a US dollar, from the maintained list of `genai-prices`.

The list comes with the library and nothing is fetched. Whatever it does not know has no price: `None`, never a guess.
"""

from __future__ import annotations

from collections.abc import Sequence
from decimal import ROUND_CEILING, Decimal
from functools import lru_cache
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from genai_prices.types import ModelInfo

    from holdfast.contracts.model import ModelUsage

_MICROS = Decimal(1_000_000)


class Listing(NamedTuple):
    """Under which names a model may be found in the list."""

    names: Sequence[str]
    """The model's, most exact first."""
    provider: str | None
    """The provider's, when it is asked at its own address."""
    url: str | None = None
    """The address, when it is another."""


def cost_micros(listing: Listing, usage: ModelUsage) -> int | None:
    """What a call used, in money, rounded up; `None` if nobody knows the price."""
    from genai_prices import Usage

    spent = Usage(
        input_tokens=usage.input_tokens,
        output_tokens=usage.output_tokens,
        cache_read_tokens=usage.cache_read_tokens,
        cache_write_tokens=usage.cache_write_tokens,
    )
    return _micros(listing, spent)


def estimate_micros(listing: Listing, input_tokens: int, output_tokens: int) -> int | None:
    """What a call will cost at most if it uses so many tokens; nothing is taken for cached."""
    from genai_prices import Usage

    return _micros(listing, Usage(input_tokens=input_tokens, output_tokens=output_tokens))


def context_tokens(listing: Listing) -> int | None:
    """How many tokens fit into one request, where the list knows."""
    for name in listing.names:
        found = _find(name, listing.provider, listing.url)
        if found is not None:
            return found.context_window
    return None


def _micros(listing: Listing, usage: object) -> int | None:
    from datetime import UTC, datetime

    for name in listing.names:
        found = _find(name, listing.provider, listing.url)
        if found is None:
            continue
        try:
            total = found.get_prices(datetime.now(UTC)).calc_price(usage)["total_price"]
        except (LookupError, ValueError):
            # A model that is listed without a price for what was used.
            return None
        return int((total * _MICROS).to_integral_value(ROUND_CEILING))
    return None


@lru_cache(maxsize=256)
def _find(name: str, provider: str | None, url: str | None) -> ModelInfo | None:
    if provider is None and url is None:
        return None
    from genai_prices.data_snapshot import get_snapshot

    try:
        _, found = get_snapshot().find_provider_model(name, None, provider, url)
    except LookupError:
        return None
    return found
