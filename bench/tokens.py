"""Tokens of the first prompt with two hundred capabilities: in code mode, against listing all their schemas.

Counted with the tokenizer of current OpenAI models. The whole first prompt of code mode counts (instructions and tools);
of the other side only the tools do, as JSON without a space too many.
"""

from __future__ import annotations

import json
import subprocess
from collections.abc import Sequence
from typing import Any

import anyio

from bench._catalogue import catalogue
from bench._report import Report
from bench.campaign import Campaign
from bench.environments import ROOT, Unavailable, interpreter, last_line


def measure(report: Report, campaign: Campaign) -> None:
    """Every figure of this module."""
    del campaign  # nothing here runs in rounds
    tools = catalogue()
    try:
        code = tokens(*anyio.run(first_prompt, tools, True))
        direct = tokens("", anyio.run(first_prompt, tools, False)[1])
    except Exception as error:  # noqa: BLE001  it is named in the report, and the other parts go on
        report.absent(f"tokens of {len(tools)} capabilities", f"{type(error).__name__}: {error}")
        return
    detail = f"code mode {code} tokens, schemas {direct}"
    what = f"first prompt, {len(tools)} capabilities in code mode"
    report.at_most(what, code / direct * 100, 5, "%", detail)


async def first_prompt(tools: Sequence[Any], code_mode: bool) -> tuple[str, str]:
    """The instructions and the tools, as JSON, that a model gets with the first question."""
    import holdfast
    from holdfast.testing import ScriptedModel

    asked: list[Any] = []

    def model(request: Any) -> str:
        asked.append(request)
        return "done"

    agent = holdfast.Agent(ScriptedModel(model), capabilities=list(tools), code_mode=code_mode)
    async with holdfast.open("memory:", config={}) as hf:
        run = await agent.run("go", session="s", runtime=hf)
    assert run.output == "done", run
    return asked[0].instructions, as_json(asked[0].tools)


def as_json(tools: Sequence[Any]) -> str:
    """Tools as they are sent to a provider."""
    sent = [
        {
            "type": "function",
            "function": {"name": t.name, "description": t.description, "parameters": t.schema},
        }
        for t in tools
    ]
    return json.dumps(sent, separators=(",", ":"), ensure_ascii=False)


def tokens(instructions: str, tools: str) -> int:
    """How many tokens a prompt has; raises `Unavailable` where there is no tokenizer."""
    command = [str(interpreter("tokenizer")), "-m", "bench.peers.tokenizer"]
    texts = json.dumps([instructions, tools])
    done = subprocess.run(
        command, check=False, capture_output=True, text=True, input=texts, cwd=ROOT
    )
    if done.returncode:
        raise Unavailable(last_line(done.stderr))
    return sum(json.loads(done.stdout))
