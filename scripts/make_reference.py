"""Writes docs/reference from the code: JSON Schemas, error codes, record kinds, settings.

`--check` writes nothing and fails when a file is not what it would write.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from pydantic import BaseModel
from pydantic.json_schema import models_json_schema

from holdfast import contracts
from holdfast.contracts._described import Described
from holdfast.contracts.payload import PAYLOADS, TERMINAL
from holdfast.errors import CODES
from holdfast.machines.registry import MACHINES
from holdfast.machines.render import page
from holdfast.runtime.settings import Settings

FOLDER = Path(__file__).resolve().parent.parent / "docs" / "reference"
WHO = {
    "caller": "The caller: fix the request",
    "model": "The model: repair the code",
    "person": "A person: decide",
    "operator": "The operator: mend the machine or its set-up",
    "us": "Us: please report it",
}


def main() -> int:
    """Write, or check, every file."""
    stale = [
        path for path, text in pages().items() if not path.exists() or path.read_text() != text
    ]
    extra = set((FOLDER / "schemas").glob("*.json")) - set(pages())
    if "--check" in sys.argv:
        for path in [*stale, *extra]:
            print(
                f"{path.relative_to(FOLDER.parent.parent)} is not what the code says: run `make reference`"
            )
        return 1 if stale or extra else 0
    (FOLDER / "schemas").mkdir(parents=True, exist_ok=True)
    for path in extra:
        path.unlink()
    for path, text in pages().items():
        path.write_text(text)
    print(f"{len(stale)} files written")
    return 0


def pages() -> dict[Path, str]:
    """Every generated file and its text."""
    found = {FOLDER / "errors.md": errors(), FOLDER / "records.md": records()}
    found[FOLDER / "settings.md"] = settings()
    found[FOLDER / "machines.md"] = machines()
    for name, model in sorted(public_models().items()):
        schema = model.model_json_schema(mode="serialization", schema_generator=Described)
        schema["$schema"] = "https://json-schema.org/draft/2020-12/schema"
        found[FOLDER / "schemas" / f"{name}.json"] = (
            json.dumps(schema, indent=2, sort_keys=True) + "\n"
        )
    return found


def public_models() -> dict[str, type[BaseModel]]:
    """The models of `holdfast.contracts`, and every payload."""
    named = {name: getattr(contracts, name) for name in contracts.__all__}
    models = {n: m for n, m in named.items() if isinstance(m, type) and issubclass(m, BaseModel)}
    return {**models, **{m.__name__: m for m in PAYLOADS.values()}}


def errors() -> str:
    """The page of error codes."""
    text = ["# Error codes", "", _made("holdfast/errors.py"), ""]
    text += [
        "Every error is one object: `code` (stable), `message` (one sentence), `hint` (what to do), and",
        "where it applies `span` and `effect_id`. Python raises it, JSON carries it, the command line exits",
        "with its exit code.",
        "",
    ]
    for actor, title in WHO.items():
        text += [f"## {title}", "", "| code | when | run status | exit |", "|---|---|---|---|"]
        for code in CODES.values():
            if code.actor == actor:
                status = f"`{code.status}`" if code.status else "–"
                text.append(f"| `{code.code}` | {code.when} | {status} | {code.exit_code} |")
        text.append("")
    return "\n".join(text)


def records() -> str:
    """The page of record kinds."""
    text = ["# Record kinds", "", _made("holdfast/contracts/payload.py"), ""]
    text += [
        "A kind of your own is `namespace.name`; its payload is any JSON object. Kinds marked † end",
        "something: a subscriber that falls behind still gets each of them.",
        "",
    ]
    for kind, model in PAYLOADS.items():
        mark = " †" if kind in TERMINAL else ""
        text += [f"## `{kind}`{mark}", "", (model.__doc__ or "").strip(), ""]
        text += _fields(model)
    text += ["## The envelope", "", "What every record carries around its payload.", ""]
    text += _fields(contracts.Record)
    return "\n".join(text)


def machines() -> str:
    """The page of lifecycles."""
    text = ["# Lifecycles", "", _made("holdfast/machines"), ""]
    text += [
        "Each one is a table that is executed, drawn and searched exhaustively. A row fires when the state is",
        "in one of its phases and all its guards hold; rows are tried from the top. An input that no row takes in",
        "that phase is `NO_TRANSITION`; one whose rows all have a guard that says no is `GUARD_REJECTED`.",
        "",
        "| machine | phases | rows | what it is for |",
        "|---|---|---|---|",
    ]
    for one in MACHINES.values():
        link = f"[`{one.name}`](#{one.name})"
        text.append(f"| {link} | {len(one.phases)} | {len(one.rows)} | {one.purpose} |")
    text.append("")
    return "\n".join(text + [page(one) for one in MACHINES.values()])


def settings() -> str:
    """The page of settings."""
    text = ["# Settings", "", _made("holdfast/runtime/settings.py"), ""]
    text += [
        "From the nearest `holdfast.toml`, looking upward from the working directory; `HOLDFAST_*` win over",
        "the file, and flags over both. An unknown key is an error.",
        "",
        "Relative paths in the file are meant from the file's folder, wherever below it holdfast is started: `home`, files of",
        "the journal, of capabilities, scripts, documents and SQLite databases, mounted folders, `cwd`, and programs that are",
        "named with a slash. A program of a surface starts there, unless it has a `cwd` or a jail. Relative paths in flags and in",
        "`HOLDFAST_*` are meant from the working directory.",
        "",
    ]
    for title, model in (("Top level", Settings), *_sections()):
        text += [f"## {title}", ""]
        text += _fields(model)
    return "\n".join(text)


def _sections() -> list[tuple[str, type[BaseModel]]]:
    found: list[tuple[str, type[BaseModel]]] = []
    for name, field in Settings.model_fields.items():
        kind = field.annotation
        if isinstance(kind, type) and issubclass(kind, BaseModel):
            found.append((f"`[{name}]`", kind))
            for inner, nested in kind.model_fields.items():
                below = nested.annotation
                if isinstance(below, type) and issubclass(below, BaseModel):
                    found.append((f"`[{name}.{inner}]`", below))
    return found


def _fields(model: type[BaseModel]) -> list[str]:
    _, schema = models_json_schema(
        [(model, "serialization")], ref_template="{model}", schema_generator=Described
    )
    own = schema["$defs"][model.__name__]["properties"]
    rows = [
        f"| `{name}` | {_type(found)} | {found.get('description', '')} |"
        for name, found in own.items()
    ]
    return ["| field | type | what |", "|---|---|---|", *rows, ""]


def _type(schema: dict[str, object]) -> str:
    if "$ref" in schema:
        return f"`{schema['$ref']}`"
    if "anyOf" in schema:
        return " or ".join(_type(one) for one in schema["anyOf"])  # type: ignore[attr-defined]
    if "const" in schema:
        return f"`{schema['const']}`"
    if "enum" in schema:
        return " or ".join(f"`{one}`" for one in schema["enum"])  # type: ignore[attr-defined]
    if schema.get("type") == "array":
        return f"list of {_type(schema.get('items', {}))}"  # type: ignore[arg-type]
    return str(schema.get("type", "JSON"))


def _made(source: str) -> str:
    return f"<!-- made from src/{source} by scripts/make_reference.py -->"


if __name__ == "__main__":
    sys.exit(main())
