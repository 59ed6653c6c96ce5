"""What stays of a conversation word for word when the rest is told in short.

It stands at the end of the summary, with its length before it: so the next time the conversation is shortened it is
found there again, whatever else the summary says, in any process and for as many times as it takes.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence

from holdfast.agent.transcript import COMPACTED
from holdfast.contracts.message import AssistantMessage, Message, UserMessage

_MARK = re.compile(r"\[Kept word for word: (\d+) pieces, (\d+) characters\]\n")
_GAP = "\n\n"


def as_kept(texts: Sequence[str]) -> str:
    """These texts as the end of a summary."""
    if not texts:
        return ""
    pieces = _GAP.join(f"[{len(text)}]\n{text}" for text in texts)
    return f"[Kept word for word: {len(texts)} pieces, {len(pieces)} characters]\n{pieces}"


def kept_before(messages: Sequence[Message]) -> list[str]:
    """What was kept when the conversation was shortened before."""
    first = messages[0] if messages else None
    if not isinstance(first, UserMessage) or not first.text.startswith(COMPACTED):
        return []
    for found in _MARK.finditer(first.text):
        rest = first.text[found.end() :]
        if len(rest) == int(found[2]):
            return _pieces(rest, int(found[1]))
    return []


def _pieces(text: str, count: int) -> list[str]:
    found: list[str] = []
    for _ in range(count):
        size, _, text = text.partition("]\n")
        length = int(size.removeprefix("["))
        found.append(text[:length])
        text = text[length + len(_GAP) :]
    return found


def as_text(message: Message) -> str:
    """A message in words: who said what."""
    if not isinstance(message, AssistantMessage):
        return f"{message.role}: {message.text}"
    said = [message.text] if message.text else []
    for call in message.calls:
        said.append(f"{call.name}({json.dumps(call.arguments, ensure_ascii=False)})")
    return f"{message.role}: {' '.join(said)}"
