"""The conversation as a model is sent it: a projection of the journal, valid by construction.

Every call has exactly one result, in the order of the calls, right after them. A call whose result is not known when
somebody else has the word (the run was cancelled, denied, or died) gets one that says so. So there is no cut through
the journal after which a provider would refuse the conversation.

The live run adds to it what it has just recorded; another process folds the records again (`history.py`) and gets the
same messages, with the same digest.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from holdfast.contracts import digest
from holdfast.contracts._base import made, sure
from holdfast.contracts.message import (
    AssistantMessage,
    Message,
    Picture,
    ToolCallPart,
    ToolMessage,
    UserMessage,
)
from holdfast.contracts.model import ModelAnswer
from holdfast.models.tokens import picture_tokens

EMPTY = "0" * 64
"""The digest of no conversation."""

COMPACTED = "[Context compacted]"
"""How the message begins that stands for an earlier part of the conversation."""

GOALS = 5
"""Messages of people that a run remembers word for word beside its prompt, however long it gets: the newest."""

_LOST = "The run ended before this call had a result."


@dataclass(slots=True)
class Transcript:
    """Messages, in order, and what they come to."""

    messages: list[Message] = field(default_factory=list[Message])
    """What a model is sent. Only this object changes it."""
    digest: str = EMPTY
    """Names the conversation: it follows from every message so far."""
    tokens: int = 0
    """About how many tokens it is."""
    count: int = 0
    """Messages there were, those that are told in short by now included."""
    waiting: dict[str, ToolMessage | None] = field(default_factory=dict[str, ToolMessage | None])
    """The calls of the newest answer, in order, and the results that are known."""
    partial: ModelAnswer | None = None
    """What came of an answer that broke off, unless another one followed."""
    cut: bool = False
    """Whether the newest answer ended where it had no room for more: then its end may be missing."""
    last_text: str = ""
    """The last thing the model said in words in the newest run."""
    answers: int = 0
    """Answers there were, those that are told in short by now included."""
    settled_at: int = 0
    """Answers there were when the conversation was last told in short, or told at length again."""
    shortened: bool = False
    """Whether a part of it is told in short."""
    reported: int = 0
    """Tokens in, as the provider counted them for the newest answer; 0 when nobody did since it was shortened."""
    pictured: bool = False
    """Whether there ever was a picture in it."""
    goals: tuple[str, ...] = ()
    """What the newest run is to do: its prompt, and what people said to it since."""

    def begin(self) -> None:
        """A run starts: what others were to do, and what they said, is not its own."""
        self.close()
        self.goals = ()
        self.last_text = ""

    def prompt(self, text: str, *, notice: bool = False) -> None:
        """A run starts: this is what it is to do."""
        self.begin()
        self.user(text, notice=notice)

    def user(self, text: str, *, notice: bool = False) -> None:
        """Somebody said something."""
        self.close()
        if not notice:
            self.goals = (*self.goals[:1], *self.goals[1:][1 - GOALS :], text)
        self._add(sure(UserMessage, text=text, notice=notice), f"u{text}".encode(), _size(text))

    def answered(self, answer: ModelAnswer, body: str) -> AssistantMessage:
        """The model said something; `body` is the digest of the answer on record."""
        self.partial = None  # it was asked again, and here is all of it
        self.close()
        self.answers += 1
        self.reported = answer.usage.input_tokens
        self.cut = answer.finish == "length"
        message = made(AssistantMessage, {"role": "assistant", "parts": answer.parts})
        size, text = 0, ""
        for part in answer.parts:
            if part.kind == "tool_call":
                self.waiting[part.id] = None
                size += len(part.name) + len(str(part.arguments)) + 16
                continue
            size += _size(part.text)
            if part.kind == "text":
                text += part.text
        self._add(message, f"a{body}".encode(), size)
        self.last_text = text or self.last_text
        return message

    def result(
        self,
        call_id: str,
        name: str,
        text: str,
        *,
        is_error: bool = False,
        pictures: tuple[Picture, ...] = (),
    ) -> None:
        """A call has its result; results join the conversation once all of them are known."""
        if call_id not in self.waiting or self.waiting[call_id] is not None:
            return
        found = made(
            ToolMessage,
            {
                "role": "tool",
                "call_id": call_id,
                "name": name,
                "text": text,
                "is_error": is_error,
                "pictures": pictures,
            },
        )
        self.waiting[call_id] = found
        if None not in self.waiting.values():
            self._flush()

    def close(self, why: str = _LOST) -> None:
        """Nothing more is coming: every call that has no result gets one that says so."""
        if self.waiting:
            names = {call.id: call.name for call in self._asked()}
            for call_id, known in self.waiting.items():
                if known is None:
                    self.waiting[call_id] = sure(
                        ToolMessage,
                        call_id=call_id,
                        name=names.get(call_id, "unknown"),
                        text=why,
                        is_error=True,
                    )
            self._flush()
        if self.partial is not None:
            partial, self.partial = self.partial, None
            seen = "".join(part.text for part in partial.parts if part.kind == "text")
            if seen:  # what a person saw stays; calls that nobody made do not
                said = ModelAnswer(parts=tuple(p for p in partial.parts if p.kind == "text"))
                self._add(
                    sure(AssistantMessage, parts=said.parts), f"p{seen}".encode(), _size(seen)
                )
                self.answers += 1
                self.last_text = seen

    def open_calls(self) -> list[ToolCallPart]:
        """The calls of the newest answer that have no result yet, in order."""
        if not self.waiting:
            return []
        return [call for call in self._asked() if self.waiting.get(call.id, call) is None]

    def compact(self, summary: str, keep: int) -> None:
        """Put `summary` in the place of all but the last `keep` messages."""
        text = f"{COMPACTED}\n{summary}"
        tail = self.messages[len(self.messages) - keep :] if keep else []
        self.messages = [sure(UserMessage, text=text, notice=True), *tail]
        self.tokens = sum(estimate(message) for message in self.messages)
        self.settled_at, self.shortened, self.reported = self.answers, True, 0
        self.digest = digest(f"{self.digest}c{keep}:{summary}".encode())

    def restore(self, originals: Sequence[Message]) -> None:
        """Undo every compaction."""
        self.messages = [*originals]
        self.tokens = sum(estimate(message) for message in self.messages)
        self.settled_at, self.shortened, self.reported = self.answers, False, 0
        self.digest = digest(f"{self.digest}r{len(originals)}".encode())

    def _asked(self) -> Sequence[ToolCallPart]:
        for message in reversed(self.messages):
            if isinstance(message, AssistantMessage):
                return message.calls
        return ()

    def _flush(self) -> None:
        for found in self.waiting.values():
            assert found is not None
            mark = f"t{found.call_id}\0{found.is_error:d}{found.text}".encode()
            size = _size(found.text)
            if found.pictures:
                self.pictured = True
                mark += "".join(f"\0{one.digest}" for one in found.pictures).encode()
                size += 4 * sum(picture_tokens(one) for one in found.pictures)
            self._add(found, mark, size)
        self.waiting = {}

    def _add(self, message: Message, mark: bytes, size: int) -> None:
        self.messages.append(message)
        self.count += 1
        self.tokens += size // 4 + 4
        self.digest = digest(self.digest.encode() + mark)


def estimate(message: Message) -> int:
    """About how many tokens a message is."""
    if isinstance(message, AssistantMessage):
        size = 0
        for part in message.parts:
            if part.kind == "tool_call":
                size += len(part.name) + len(str(part.arguments)) + 16
            else:
                size += _size(part.text)
        return size // 4 + 4
    shown = 0
    if isinstance(message, ToolMessage):
        shown = sum(picture_tokens(one) for one in message.pictures)
    return _size(message.text) // 4 + 4 + shown


def _size(text: str) -> int:
    """Its bytes: four of them are about a token in any script, four letters are not."""
    return len(text) if text.isascii() else len(text.encode("utf-8", "surrogatepass"))
