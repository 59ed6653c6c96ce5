"""What code may call in the tests of the server: something that acts, so that people are asked, and something that only looks."""

from holdfast import capability

paid: list[str] = []
"""Who was paid; of every test in turn: clear it first."""


@capability(side_effect="write")
def pay(to: str) -> str:
    """Pay somebody."""
    paid.append(to)
    return f"paid {to}"


@capability(side_effect="read")
def look(what: str) -> str:
    """Look something up."""
    return what.upper()
