"""JSON Schemas of the contracts, with what is written below each field.

pydantic can read these texts itself (`use_attribute_docstrings`), but does so for every model as it is imported: a
fifth of the time a command takes. Here they are read when somebody wants a schema.
"""

from __future__ import annotations

import ast
import inspect
from collections.abc import Mapping
from functools import lru_cache
from textwrap import dedent
from typing import Any

from pydantic import BaseModel
from pydantic.json_schema import GenerateJsonSchema, JsonSchemaValue
from pydantic_core import core_schema


class Described(GenerateJsonSchema):
    """For `model_json_schema(schema_generator=...)` and its like."""

    def model_schema(self, schema: core_schema.ModelSchema) -> JsonSchemaValue:
        """The schema of a model."""
        found = super().model_schema(schema)
        properties: dict[str, Any] = found.get("properties", {})
        for name, text in texts_of(schema["cls"]).items():
            if name in properties:
                properties[name].setdefault("description", text)
        return found


@lru_cache(maxsize=256)
def texts_of(model: type[BaseModel]) -> Mapping[str, str]:
    """What is written below each field of a model, by the name it has in JSON."""
    found: dict[str, str] = {}
    for one in reversed(model.__mro__):
        if issubclass(one, BaseModel) and one is not BaseModel:
            found |= _written(one)
    named = {name: field.alias or name for name, field in model.model_fields.items()}
    return {named[name]: text for name, text in found.items() if name in named}


def _written(model: type[BaseModel]) -> dict[str, str]:
    try:
        source = inspect.getsource(model)
    except (OSError, TypeError):
        return {}  # made by a program, or the source is not there
    body = ast.parse(dedent(source)).body[0]
    assert isinstance(body, ast.ClassDef)
    found: dict[str, str] = {}
    for field, below in zip(body.body, body.body[1:], strict=False):
        if isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name):
            match below:
                case ast.Expr(value=ast.Constant(value=str(text))):
                    found[field.target.id] = inspect.cleandoc(text)
                case _:
                    pass
    return found
