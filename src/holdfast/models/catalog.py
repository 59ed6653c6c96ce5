"""A model by its id: `provider:name`. Nothing of a provider is imported before it is asked something."""

from __future__ import annotations

import runpy
from importlib import import_module
from pathlib import Path
from typing import cast

from holdfast.errors import HoldfastError, ModelFailure
from holdfast.models.base import Model
from holdfast.models.script import read_recording
from holdfast.models.scripted import Scripted

SCRIPTED = "scripted:"


def model(
    id: str,
    *,
    base_url: str | None = None,
    api_key: str | None = None,
    api_key_env: str | None = None,
    pictures: bool | None = None,
) -> Model:
    """The model with this id; raises `MODEL_UNKNOWN` when there can be none.

    `openai:`, `openai-responses:`, `anthropic:`, `google:` and `ollama:` take a model's name, and behind it
    `@https://host/v1` for a compatible server, and `#VARIABLE` for the environment variable with its key; `base_url`,
    `api_key` and `api_key_env` say the same in code. `pictures` says whether it sees pictures, where that is not what is
    assumed: that models at a provider's own address do, and others do not. `scripted:` takes a recording (`answers.json`), or a script as
    `module:attribute` or `file.py:attribute`.
    """
    if id.startswith(SCRIPTED):
        return _scripted(id)
    from holdfast.models.access import access
    from holdfast.models.pydantic_ai import ProviderModel

    where = access(
        id, base_url=base_url, api_key=api_key, api_key_env=api_key_env, pictures=pictures
    )
    return ProviderModel(where)


async def close(model: Model) -> None:
    """End the connections of a model, where it has any; it can be asked again afterwards."""
    aclose = getattr(model, "aclose", None)
    if aclose is not None:
        await aclose()


def estimate(id: str, input_tokens: int, output_tokens: int) -> int | None:
    """What a call of this model costs at most, in millionths of a US dollar; `None` if nobody knows."""
    from holdfast.models._providers import PROVIDERS

    if id.partition(":")[0] not in PROVIDERS:
        return None  # a script, or a model of somebody's own
    from holdfast.models.access import access
    from holdfast.models.price import estimate_micros

    return estimate_micros(access(id).listing, input_tokens, output_tokens)


def _scripted(id: str) -> Model:
    where = id.removeprefix(SCRIPTED)
    try:
        found = _script(where)
    except (OSError, ImportError, AttributeError, KeyError) as why:
        raise _no_script(id, f"{type(why).__name__}: {why}") from why
    except HoldfastError as why:
        raise _no_script(id, why.message.rstrip(".")) from why
    if isinstance(found, Scripted):
        return found
    if callable(found) or isinstance(found, list | tuple):
        return Scripted(cast("list[str]", found), id=id)
    raise _no_script(id, f"it is a `{type(found).__name__}`")


def _script(where: str) -> object:
    if where.endswith((".json", ".jsonl")):
        return read_recording(Path(where).read_text(encoding="utf-8"))
    module, _, attribute = where.rpartition(":")
    if not module or not attribute:
        raise ImportError("it is empty" if not where else "it names no attribute")
    if module.endswith(".py"):
        return runpy.run_path(module)[attribute]
    return getattr(import_module(module), attribute)


def _no_script(id: str, why: str) -> ModelFailure:
    return ModelFailure(
        "MODEL_UNKNOWN",
        f"`{id[:200]}` names no script: {why[:300]}.",
        hint="Write `scripted:answers.json`, `scripted:module:attribute` or `scripted:file.py:attribute`.",
    )
