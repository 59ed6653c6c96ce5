"""What is made of a document: names, schemas, side effects, and what is refused."""

import json
from pathlib import Path
from typing import Any, cast

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.openapi.support import Web, document, get, opened, operation, post

from holdfast.capabilities import CapabilitySet, Foreign
from holdfast.capabilities.connection import Connection, Source
from holdfast.capabilities.openapi import OpenApiSource
from holdfast.capabilities.openapi.document import parse_document
from holdfast.contracts import SideEffect
from holdfast.contracts.surface import OpenApiSurface
from holdfast.errors import CallerError, ModelError, NotFound, OperatorError

PETSTORE = Path(__file__).parent / "petstore.yaml"
PET = {"id": 1, "name": "Rex"}


async def test_a_document_is_a_source(web: Web):
    spec = OpenApiSurface(document=str(PETSTORE), base_url=web.url)
    source: Source = OpenApiSource("pets", spec)
    async with source.open() as one:
        connection: Connection = one
        assert (connection.server, connection.protocol) == (
            "Pet store 2024-01-01",
            "OpenAPI 3.0.3",
        )
        assert (await connection.resources(), connection.lost.is_set()) == ((), False)
        await connection.check()
        with pytest.raises(NotFound):
            await connection.read("x:y")


async def test_every_operation_is_a_tool(tmp_path: Path):
    async with opened(PETSTORE.read_text(), tmp_path) as api:
        assert dict(zip(api.tools, api.names, strict=True)) == {
            "listPets": "pets_listPets",
            "createPet": "pets_createPet",
            "GET /pets/{petId}": "pets_GET_pets_petId",
            "hasPet": "pets_hasPet",
            "replacePet": "pets_replacePet",
            "deletePet": "pets_deletePet",
            "changePet": "pets_changePet",
        }
        assert api.refused == {}
        assert api["listPets"].description == "List pets.\n\nIn the order of their names."
        assert api["GET /pets/{petId}"].description == "One pet"
        assert api["replacePet"].description == "PUT /pets/{petId}\n\nDeprecated."
        # All of them can be put together in one set, which checks names and schemas.
        made = [Foreign(one.capability, _nothing) for one in api.connection.offers.tools]
        assert len(CapabilitySet(*made)) == 7


async def _nothing(*_: Any) -> None: ...


async def test_what_a_method_may_touch(tmp_path: Path):
    async with opened(PETSTORE.read_text(), tmp_path) as api:
        found = {one: (api[one].side_effect.value, api[one].idempotent) for one in api.tools}
    assert found == {
        "listPets": ("network", True),
        "GET /pets/{petId}": ("network", True),
        "hasPet": ("network", True),
        "replacePet": ("external_system", True),
        "deletePet": ("external_system", True),
        "createPet": ("external_system", False),
        "changePet": ("external_system", False),
    }


async def test_what_the_definition_says_counts(tmp_path: Path):
    told = PETSTORE.read_text()
    async with opened(told, tmp_path, include=["list*", "DELETE *"], prefix="my_") as api:
        assert api.names == ["my_listPets", "my_deletePet"]
    async with opened(told, tmp_path, exclude=["*Pet*", "GET *"]) as api:
        assert api.tools == []
    effects = {"GET *": "read", "deletePet": "write"}
    async with opened(told, tmp_path, side_effects=effects, timeout_ms=77) as api:
        assert api["listPets"].side_effect is SideEffect.READ
        assert api["deletePet"].side_effect is SideEffect.WRITE
        assert api["createPet"].side_effect is SideEffect.EXTERNAL_SYSTEM
        assert {api[one].limits.timeout_ms for one in api.tools} == {77}


async def test_schemas_of_3_0_become_schemas_of_2020_12(tmp_path: Path):
    async with opened(PETSTORE.read_text(), tmp_path) as api:
        limit = cast("Any", api["listPets"].input_schema)["properties"]["limit"]
        assert limit == {
            "type": "integer",
            "exclusiveMinimum": 0,
            "maximum": 100,
            "description": "At most so many.",
        }
        create = cast("Any", api["createPet"].input_schema)
        assert create["required"] == ["name"]
        assert "id" not in create["properties"]  # readOnly
        assert create["properties"]["born"]["type"] == ["string", "null"]
        assert create["properties"]["kind"]["enum"] == ["dog", "no", "on", None]  # not False, True
        assert create["properties"]["owner"] == {
            "anyOf": [{"allOf": [{"$ref": "#/$defs/Owner"}]}, {"type": "null"}]
        }
        assert set(create["$defs"]) == {"Owner", "Pet"}  # round and round, and no further
        assert "id" not in create["$defs"]["Pet"]["properties"]
        out = cast("Any", api["listPets"].output_schema)
        assert set(out["$defs"]["Pet"]["properties"]) >= {"id", "name"}
        assert "secret" not in out["$defs"]["Pet"]["properties"]  # writeOnly
        assert "additionalProperties" not in out["$defs"]["Pet"]  # a server may come to say more
        both = cast("Any", api["createPet"].output_schema)
        assert both["anyOf"] == [{"$ref": "#/$defs/Pet"}, {"type": "null"}]
        assert api["deletePet"].output_schema == {"type": "null"}
        assert api["hasPet"].output_schema == {}


async def test_schemas_are_enforced_both_ways(web: Web, tmp_path: Path):
    def answers(_: Any) -> Any:
        return 200, {"content-type": "application/json"}, json.dumps(said).encode()

    web.answers = answers
    async with opened(PETSTORE.read_text(), tmp_path, base_url=web.url) as api:
        said: Any = [{**PET, "more": 1, "owner": None, "children": [PET]}]
        assert await api("listPets", limit=5) == said
        for limit in (0, 101, "5"):
            with pytest.raises(CallerError, match="limit"):
                await api("listPets", limit=limit)
        said = [{"id": 1}]
        with pytest.raises(ModelError, match=r"does not promise: `result\[0\].name`"):
            await api("listPets")
        with pytest.raises(CallerError, match=r"children\[0\]"):
            await api("createPet", name="a", children=[{"id": 1, "name": "x"}])  # readOnly, inside


async def test_schemas_of_3_1(tmp_path: Path):
    thing = {
        "$id": "https://example.com/thing",
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "type": ["object", "null"],
        "properties": {
            "a": {"const": 1, "examples": [1]},
            "b": {"$ref": "#/components/schemas/B", "description": "Mine."},
            "c": {"type": "array", "prefixItems": [{"type": "string"}], "items": False},
        },
        "patternProperties": {"^x": {"type": "string"}},
        "if": {"required": ["a"]},
        "then": {"required": ["b"]},
    }
    told = post("application/json", {"$ref": "#/components/schemas/Thing"}) | {
        "components": {"schemas": {"Thing": thing, "B": {"exclusiveMinimum": 3}}}
    }
    async with opened(told, tmp_path) as api:
        schema = cast("Any", api["op"].input_schema)
    assert schema["properties"]["body"] == {"$ref": "#/$defs/Thing"}
    found = schema["$defs"]["Thing"]
    assert found == {
        "type": ["object", "null"],
        "properties": {
            "a": {"const": 1},
            "b": {"description": "Mine.", "$ref": "#/$defs/B"},
            "c": thing["properties"]["c"],
        },
        "patternProperties": {"^x": {"type": "string"}},
        "if": {"required": ["a"]},
        "then": {"required": ["b"]},
    }


async def test_what_one_schema_drags_in_is_bounded(tmp_path: Path):
    # Each of them refers to all of them: as in large documents, everything leads to everything.
    names = [f"S{n}" for n in range(300)]
    every = {one: {"$ref": f"#/components/schemas/{one}"} for one in names}
    schemas = {one: {"type": "object", "properties": every} for one in names}
    told = post("application/json", {"type": "array", "items": every["S0"]}) | {
        "components": {"schemas": schemas}
    }
    response = {"200": {"content": {"application/json": {"schema": every["S0"]}}}}
    told["paths"]["/x"]["post"]["responses"] = response
    async with opened(told, tmp_path) as api:
        one = api["op"]
    assert len(json.dumps(one.input_schema)) < 200_000
    definitions = cast("Any", one.input_schema)["$defs"]
    assert len(definitions) == 300
    assert sum(1 for schema in definitions.values() if schema) < 20  # the rest is left open


# --- one operation is refused, the others are not ---

REFUSED = [
    ({"parameters": [{"$ref": "other.yaml#/x"}]}, "`other.yaml#/x` leads out of the document"),
    ({"parameters": [{"$ref": "http://evil/x"}]}, "leads out of the document"),
    ({"parameters": [{"$ref": "#/nowhere"}]}, "`#/nowhere` leads nowhere"),
    ({"parameters": [{"in": "query"}]}, "a parameter has no name"),
    ({"parameters": [{"name": "a", "in": "cookie", "required": True}]}, "can't be sent"),
    ({"parameters": [{"name": "a", "in": "query", "style": "matrix"}]}, "style `matrix`"),
    ({"parameters": [{"name": "a", "in": "query", "content": {"text/csv": {}}}]}, "other than JSON"),
    ({"parameters": [{"name": "a", "in": "query", "schema": {"type": "nonsense"}}]}, "schema"),
    ({"parameters": [{"name": "a", "in": "query", "schema": {"pattern": "("}}]}, "schema"),
    ({"parameters": [{"name": "a", "in": "query", "schema": 5}]}, "a schema is no object"),
    ({"parameters": [{"name": "a", "in": "query", "schema": {"$dynamicRef": "#x"}}]}, "dynamic"),
    ({"parameters": [{"name": "a", "in": "path", "required": True}]}, "no place for `a`"),
    ({"requestBody": {"required": True, "content": {"a/b": {}}}}, "can't be sent"),
    ({"requestBody": {"$ref": "#/paths/~1x/post/requestBody"}}, "refers to itself"),
    ({"servers": [{"url": "https://other.example.com"}]}, "served elsewhere"),
]  # fmt: skip


@pytest.mark.parametrize(("bad", "why"), REFUSED)
async def test_a_bad_operation_is_refused_with_the_reason(tmp_path: Path, bad: Any, why: str):
    told: Any = get() | {"servers": [{"url": "https://api.example.com"}]}
    told["paths"]["/x"]["post"] = operation(operationId="bad", **bad)
    async with opened(told, tmp_path, base_url=None) as api:
        assert api.tools == ["op"]
        assert why in api.refused["bad"]


@pytest.mark.parametrize(
    "path",
    ["/a/{b}", "no-slash", "/a?b=c", "/a#b", "/a b", "/../x", "/a/%2e%2e/x", "/a/{b", "/a\\b", "/a\n"],
)  # fmt: skip
async def test_a_bad_path_is_refused(tmp_path: Path, path: str):
    async with opened(
        document({path: {"get": operation()}, "/x": {"get": operation()}}), tmp_path
    ) as api:
        assert api.tools == ["GET /x"]
        assert len(api.refused) == 1


async def test_parameters_that_are_never_sent_are_not_asked_for(tmp_path: Path):
    names = ["Accept", "Content-Type", "authorization", "Host", "X-Given", "bad name"]
    told = get(
        *({"name": one, "in": "header", "schema": {}} for one in names),
        {"name": "c", "in": "cookie", "schema": {}},
    )
    async with opened(told, tmp_path, headers={"x-given": "1"}) as api:
        assert api["op"].input_schema["properties"] == {}


async def test_operations_that_are_called_alike(tmp_path: Path):
    told = document(
        {
            "/a": {"get": operation(operationId="same")},
            "/b": {"get": operation(operationId="same"), "put": operation(operationId="s-ame")},
            "/c": {"get": operation(operationId="s.ame"), "put": operation(operationId="s_ame")},
        }
    )
    async with opened(told, tmp_path) as api:
        assert "another operation is called `same`" in api.refused["GET /b"]
        names = dict(zip(api.tools, api.names, strict=True))
        assert (names["same"], names["s_ame"]) == ("pets_same", "pets_s_ame")
        assert len(set(names.values())) == 4


@settings(max_examples=40)
@given(ids=st.lists(st.text(max_size=80), max_size=6))
async def test_whatever_operations_are_called_their_names_are_names(
    tmp_path_factory: Any, ids: Any
):
    told = document({f"/{n}": {"get": operation(operationId=one)} for n, one in enumerate(ids)})
    folder = tmp_path_factory.mktemp("names")
    async with opened(json.dumps(told), folder) as api:
        assert len(set(api.names)) == len(api.names) == len(set(api.tools))
        for name in api.names:
            assert name.isascii()
            assert name.isidentifier()
            assert len(name) <= 64


async def test_what_comes_from_a_document_is_only_words(tmp_path: Path):
    name = "x(): pass\nimport os; os.system('rm') #\u202e"
    told = get({"name": "a", "in": "query", "description": "b\0\x1b[31m\u200bc" + "d" * 9000})
    told["paths"]["/x"]["get"] |= {
        "operationId": name,
        "summary": "s\0\u202e",
        "description": "e" * 9000,
    }
    async with opened(told, tmp_path) as api:
        assert api.names == ["pets_x_pass_import_os_os_system_rm"]
        one = api[name]
        words = cast("Any", one.input_schema)["properties"]["a"]["description"]
    assert words.startswith("b[31mcd")
    assert len(words) <= 300
    assert len(one.description) <= 2000
    assert not {"\0", "\u202e", "\u200b", "\x1b"} & set(one.description + words)


# --- documents that are none ---

BOMB = "a: &a [x, x, x, x, x, x, x, x, x]\n" + "".join(
    f"{chr(98 + n)}: &{chr(98 + n)} [{', '.join([f'*{chr(97 + n)}'] * 9)}]\n" for n in range(12)
)
MERGE_BOMB = "a: &a {x: 1, y: 2}\n" + "".join(
    f"{chr(98 + n)}: &{chr(98 + n)} {{<<: [{', '.join([f'*{chr(97 + n)}'] * 9)}]}}\n"
    for n in range(12)
)

BAD = [
    ("", "it is no object"),
    ("[]", "it is no object"),
    ("{", "it is not JSON"),
    ("a: [", "it is not YAML"),
    ('{"a": NaN}', "which JSON has not"),
    ("openapi: 2.0.0", "3.0 and 3.1 are understood"),
    ("swagger: '2.0'", "Swagger 2"),
    ("x: !!python/object/apply:os.system ['true']", "it is not YAML"),
    ("x: !!timestamp 2020-01-01", "a `date`, which JSON has not"),
    ("x: !!binary aGk=", "a `bytes`, which JSON has not"),
    ("? [a, b]\n: c", "it is not YAML"),
    ("a: &a [*a]", "stands for itself"),
    ("a: *b", "stands for itself or nothing"),
    (BOMB, "stands for more than"),
    (MERGE_BOMB, "stands for more than"),
    ("[" * 200 + "]" * 200, "more than 100 deep"),
    ('{"a":' * 200 + "1" + "}" * 200, "more than 100 deep"),
    ('{"a":' * 100_000, "it is not JSON"),
    ("- " * 5000 + "x", "deep"),
    ('{"openapi": "3.1.0", "a": "\\ud800"}', "no Unicode"),
    (b"\xff\xfe", "not UTF-8"),
    ("x: " + "9" * 5000, "it is not YAML"),
]


@pytest.mark.parametrize(("text", "why"), BAD, ids=range(len(BAD)))
async def test_what_is_no_document_is_told(tmp_path: Path, text: str | bytes, why: str):
    with pytest.raises(OperatorError, match="`pets` can't be connected") as caught:
        async with opened(text, tmp_path):
            pass
    assert caught.value.code == "SURFACE_FAILED"
    assert why in caught.value.message


async def test_a_file_that_is_none_is_told(tmp_path: Path):
    for path, why in [
        (tmp_path / "none.json", "No such file"),
        (tmp_path, "is no file"),
        ("/dev/zero", "is no file"),
        ("a\0b", "its path is none"),
    ]:
        spec = OpenApiSurface(document=str(path), base_url="https://example.com")
        with pytest.raises(OperatorError, match=why):
            async with OpenApiSource("pets", spec).open():
                pass


async def test_a_file_that_is_too_long_is_told(tmp_path: Path):
    path = tmp_path / "long.yaml"
    with path.open("wb") as file:
        file.truncate(16 * 1024 * 1024 + 1)
    with pytest.raises(OperatorError, match="more than 16777216 bytes"):
        async with OpenApiSource("pets", OpenApiSurface(document=str(path))).open():
            pass


def test_yaml_is_read_as_json_would_be():
    text = "openapi: 3.1.0\na: no\nb: 2020-01-01\nc: 010\nd: 1e3\ne: ~\nf: 1:30\n200: x\ntrue: y\nh: .nan\n"
    assert parse_document(text.encode()) == {
        "openapi": "3.1.0",
        "a": "no",
        "b": "2020-01-01",
        "c": "010",
        "d": 1000.0,
        "e": None,
        "f": "1:30",
        "200": "x",
        "true": "y",
        "h": ".nan",
    }


async def test_five_thousand_operations(tmp_path: Path):
    told = document({f"/p{n}": {"get": operation(operationId=f"op{n}")} for n in range(5000)})
    async with opened(told, tmp_path) as api:
        assert len(api.tools) == 1000
        assert len(api.refused) == 201
        assert api.refused["3800 more"]
        assert "include" in api.refused["op1000"]
    async with opened(told, tmp_path, include=["op49*"]) as api:
        assert len(api.tools) == 111
        assert api.refused == {}


async def test_a_schema_that_is_too_large_is_refused(tmp_path: Path):
    huge = {"enum": [f"value-{n}" for n in range(30_000)]}
    wide = {"properties": {f"p{n}": {"description": "d" * 300} for n in range(800)}}
    told = post("application/json", {"type": "array", "items": huge})
    told["paths"]["/y"] = post("application/json", wide)["paths"]["/x"]
    told["paths"]["/y"]["post"]["operationId"] = "wide"
    async with opened(told, tmp_path) as api:
        assert "more than 20000 parts" in api.refused["op"]
        assert "bytes, 131072 are allowed" in api.refused["wide"]
