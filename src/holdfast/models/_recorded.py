"""The answers in a saved run, as steps of a script: `holdfast.testing.save` writes such files."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

MARK = "recording"
"""The key by which the first line of a saved run is known."""


def answers_of(lines: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """What its model said, in order, and how it failed in between; summaries of the conversation are left out."""
    run_id = lines[0]["run_id"]
    content = {
        str(one["content"]): one["text"] for one in lines if "content" in one and "text" in one
    }
    asked: set[str] = set()
    steps: list[dict[str, Any]] = []
    for record in _records(lines, run_id):
        said = record["payload"]
        effect = str(said.get("effect_id"))
        if record["kind"] == "effect_intent":
            if said["kind"] == "provider_request" and said.get("turn") is not None:
                asked.add(effect)
        elif record["kind"] == "effect_result" and effect in asked:
            step = _step(said, content)
            if step is not None:
                steps.append(step)
        elif record["kind"] == "model_retry" and steps and "fail" in steps[-1]:
            steps[-1]["retry_after_ms"] = said["delay_ms"]  # as long as it took then
    return steps


def _records(lines: Sequence[Mapping[str, Any]], run_id: object) -> Iterator[Mapping[str, Any]]:
    records = (one["body"] for one in lines if "body" in one)
    return (one for one in records if one.get("run_id") == run_id)


def _step(said: Mapping[str, Any], content: Mapping[str, str]) -> dict[str, Any] | None:
    refs = said.get("content_refs") or ()
    answer: dict[str, Any] | None = json.loads(content[refs[0]]) if refs else None
    error = said.get("error")
    if error is None:
        return answer
    if not str(error["code"]).startswith("MODEL_"):
        return None  # it was not the model that refused
    step: dict[str, Any] = {"fail": error["code"], "message": error["message"]}
    return step if answer is None else {**step, "partial": answer}
