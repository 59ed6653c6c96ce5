"""What is wanted of tool surfaces."""

from __future__ import annotations

from holdfast.journal._rows import Fact, Fold, Rows


def _surface_staged(rows: Rows, fact: Fact) -> None:
    said = fact.payload
    if said["op"] == "reload":  # it is what it was, connected anew
        return
    rows.put("surfaces", said["name"], {**said, "seq": fact.seq, "pos": fact.pos}, said["op"])


SURFACES: dict[str, Fold] = {"surface_staged": _surface_staged}
"""Kind → fold."""
