"""smolagents: its two agents, `tool` (calls tools) and `code` (writes Python); it stores nothing and awaits nothing."""

# pyright: reportMissingImports=false

from __future__ import annotations

from typing import Any

from smolagents import CodeAgent, LogLevel, Model, ToolCallingAgent
from smolagents import tool as declared
from smolagents.models import (
    ChatMessage,
    ChatMessageToolCall,
    ChatMessageToolCallFunction,
    MessageRole,
)

from bench.peers import frame
from bench.peers.frame import DONE, USER, Asked, Tool

COUNTED = Tool()


@declared
def tool(n: int) -> dict:
    """Do a thing.

    Args:
        n: a number
    """
    return COUNTED(n)


class Scripted(Model):
    """Calls the tool until it has been called often enough."""

    def __init__(self, turns: int, variant: str) -> None:
        super().__init__(model_id="scripted")
        self._turns, self._variant, self._at = turns, variant, 0

    def generate(self, *_: Any, **__: Any) -> ChatMessage:
        """The next answer."""
        at = self._at
        self._at += 1
        last = at >= self._turns
        if self._variant == "code":
            code = f'final_answer("{DONE}")' if last else f"r = tool({at})\nprint(r)"
            text = f"Thought: step\n<code>\n{code}\n</code>"
            return ChatMessage(role=MessageRole.ASSISTANT, content=text)
        name, arguments = ("final_answer", {"answer": DONE}) if last else ("tool", {"n": at})
        called = ChatMessageToolCallFunction(name=name, arguments=arguments)
        call = ChatMessageToolCall(id=f"c{at}", type="function", function=called)
        return ChatMessage(role=MessageRole.ASSISTANT, content="", tool_calls=[call])


def loop(asked: Asked) -> None:
    """Nothing is stored. Making an agent reads its templates, which is no part of a turn: all are made before."""
    kind = CodeAgent if asked.variant == "code" else ToolCallingAgent
    agents = [
        kind(
            tools=[tool],
            model=Scripted(asked.turns, asked.variant),
            max_steps=asked.turns + 5,
            verbosity_level=LogLevel.OFF,
        )
        for _ in range(asked.warm + asked.reps)
    ]
    frame.repeat(asked, lambda at: agents[at].run(USER), COUNTED)


if __name__ == "__main__":
    frame.main(loop=loop)
