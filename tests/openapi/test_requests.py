"""From arguments to the request that the server sees: every place, every style, every kind of body."""

import json
import string
import tempfile
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.openapi.support import Doc, Web, document, get, opened, operation, post

from holdfast.errors import CallerError

ARRAY = [3, 4]
THING = {"role": "admin", "a b": "x&y"}


def parameter(where: str, **more: Any) -> Doc:
    return {"name": "id", "in": where, "required": where == "path", "schema": {}, **more}


# The table of the specification, with values that need encoding in it.
PATHS = [
    ("simple", False, 5, "5"),
    ("simple", False, ARRAY, "3,4"),
    ("simple", False, THING, "role,admin,a%20b,x%26y"),
    ("simple", True, ARRAY, "3,4"),
    ("simple", True, THING, "role=admin,a%20b=x%26y"),
    ("label", False, 5, ".5"),
    ("label", False, ARRAY, ".3,4"),
    ("label", False, THING, ".role,admin,a%20b,x%26y"),
    ("label", True, ARRAY, ".3.4"),
    ("label", True, THING, ".role=admin.a%20b=x%26y"),
    ("matrix", False, 5, ";id=5"),
    ("matrix", False, ARRAY, ";id=3,4"),
    ("matrix", False, THING, ";id=role,admin,a%20b,x%26y"),
    ("matrix", True, ARRAY, ";id=3;id=4"),
    ("matrix", True, THING, ";role=admin;a%20b=x%26y"),
]


@pytest.mark.parametrize(("style", "explode", "value", "sent"), PATHS)
async def test_styles_of_a_path(
    web: Web, tmp_path: Path, style: str, explode: bool, value: Any, sent: str
):
    told = get(parameter("path", style=style, explode=explode), path="/a/{id}/b")
    async with opened(told, tmp_path, base_url=f"{web.url}/v1/") as api:
        await api("op", id=value)
    assert web.last.path == f"/v1/a/{sent}/b"


QUERIES = [
    ("form", True, 5, "id=5"),
    ("form", True, ARRAY, "id=3&id=4"),
    ("form", True, THING, "role=admin&a%20b=x%26y"),
    ("form", False, ARRAY, "id=3,4"),
    ("form", False, THING, "id=role,admin,a%20b,x%26y"),
    ("spaceDelimited", False, ARRAY, "id=3%204"),
    ("pipeDelimited", False, ARRAY, "id=3%7C4"),
    ("pipeDelimited", False, {"a": 1}, "id=a%7C1"),
    ("spaceDelimited", True, ARRAY, "id=3&id=4"),
    ("deepObject", True, THING, "id%5Brole%5D=admin&id%5Ba%20b%5D=x%26y"),
    ("deepObject", True, {"a": {"b": [1, {"c": 2}]}}, "id%5Ba%5D%5Bb%5D%5B0%5D=1&id%5Ba%5D%5Bb%5D%5B1%5D%5Bc%5D=2"),
    ("form", True, [], ""),
    ("form", False, [], ""),
    ("form", True, None, ""),
    ("form", True, [None, 1], "id=1"),
    ("form", True, True, "id=true"),
    ("form", True, 1.0, "id=1"),
    ("form", True, 1.5, "id=1.5"),
    ("form", True, [{"a": 1}], "id=%7B%22a%22%3A1%7D"),
    ("form", True, "é/?#&=+ ", "id=%C3%A9%2F%3F%23%26%3D%2B%20"),
]  # fmt: skip


@pytest.mark.parametrize(("style", "explode", "value", "sent"), QUERIES)
async def test_styles_of_a_query(
    web: Web, tmp_path: Path, style: str, explode: bool, value: Any, sent: str
):
    told = get(parameter("query", style=style, explode=explode))
    async with opened(told, tmp_path, base_url=web.url) as api:
        await api("op", id=value)
    assert web.last.raw_query == sent


async def test_reserved_characters_stay_where_that_is_wanted(web: Web, tmp_path: Path):
    async with opened(
        get(parameter("query", allowReserved=True)), tmp_path, base_url=web.url
    ) as api:
        await api("op", id="a/b:c&d#e=f")
    assert web.last.raw_query == "id=a/b:c%26d%23e%3Df"  # what would end the value is still encoded


@pytest.mark.parametrize(
    ("explode", "value", "sent"),
    [
        (False, 5, "5"),
        (False, ARRAY, "3,4"),
        (False, {"a": 1, "b": 2}, "a,1,b,2"),
        (True, {"a": 1, "b": 2}, "a=1,b=2"),
        (False, True, "true"),
    ],
)
async def test_headers(web: Web, tmp_path: Path, explode: bool, value: Any, sent: str):
    told = get({"name": "X-Rate-Limit", "in": "header", "explode": explode, "schema": {}})
    async with opened(told, tmp_path, base_url=web.url) as api:
        await api("op", x_rate_limit=value)
        assert web.last.headers["x-rate-limit"] == sent
        await api("op", x_rate_limit=None)
        assert "x-rate-limit" not in web.last.headers


@pytest.mark.parametrize("value", ["a\r\nX-Evil: 1", "é", "a\0b"])
async def test_a_header_takes_no_value_that_would_be_more_than_one(
    web: Web, tmp_path: Path, value: str
):
    told = get({"name": "X-A", "in": "header", "schema": {"type": "string"}})
    async with opened(told, tmp_path, base_url=web.url) as api:
        with pytest.raises(CallerError, match="characters that a header can't have"):
            await api("op", x_a=value)
    assert web.asked == []


@pytest.mark.parametrize("value", ["..", ".", "a/../b", "..\\x", "", [], None, ["..", "a/.."]])
async def test_a_value_leads_to_no_other_path(web: Web, tmp_path: Path, value: Any):
    told = get(parameter("path"), path="/users/{id}/posts")
    async with opened(told, tmp_path, base_url=web.url) as api:
        with pytest.raises(CallerError, match="path"):
            await api("op", id=value)
    assert web.asked == []


async def test_parameters_as_json(web: Web, tmp_path: Path):
    content = {"content": {"application/json": {"schema": {"type": "object"}}}}
    told = get(
        {"name": "filter", "in": "query", **content}, {"name": "X-F", "in": "header", **content}
    )
    async with opened(told, tmp_path, base_url=web.url) as api:
        await api("op", filter={"a": [1]}, x_f={"b": 2})
    assert web.last.query == [("filter", '{"a":[1]}')]
    assert web.last.headers["x-f"] == '{"b":2}'


async def test_parameters_of_the_path_are_shared_and_overruled(web: Web, tmp_path: Path):
    shared = [parameter("path"), {"name": "n", "in": "query", "schema": {"type": "string"}}]
    own = [{"name": "n", "in": "query", "schema": {"type": "integer"}}]
    told = document(
        {"/a/{id}": {"parameters": shared, "get": operation(operationId="op", parameters=own)}}
    )
    async with opened(told, tmp_path, base_url=web.url) as api:
        await api("op", id="x", n=1)
        with pytest.raises(CallerError, match="expected integer"):
            await api("op", id="x", n="1")
    assert web.last.raw_query == "n=1"


# --- names ---


async def test_names_that_clash_are_told_apart_by_where_they_go(web: Web, tmp_path: Path):
    body = {"type": "object", "properties": {"id": {}, "id_query": {}, "from": {}, "x-y": {}}}
    told = document(
        {
            "/a/{id}": {
                "post": operation(
                    operationId="op",
                    parameters=[
                        {"name": "id", "in": "header", "schema": {}},
                        {"name": "id", "in": "query", "schema": {}},
                        parameter("path"),
                        {"name": "filter[name]", "in": "query", "schema": {}},
                        {"name": "filter(name)", "in": "query", "schema": {}},
                        {"name": "2nd", "in": "query", "schema": {}},
                    ],
                    requestBody={"content": {"application/json": {"schema": body}}},
                )
            }
        }
    )
    async with opened(told, tmp_path, base_url=web.url) as api:
        names = list(api["op"].input_schema["properties"])  # type: ignore[arg-type]
        assert names == [
            *("id", "id_query", "filter_name", "filter_name_query", "_2nd"),
            *("id_header", "id_body", "id_query_body", "from_", "x_y"),
        ]
        await api("op", **{name: name for name in names})
    assert web.last.path == "/a/id"
    assert dict(web.last.query) == {
        "id": "id_query",
        "filter[name]": "filter_name",
        "filter(name)": "filter_name_query",
        "2nd": "_2nd",
    }
    assert web.last.headers["id"] == "id_header"
    assert web.last.json == {
        "id": "id_body",
        "id_query": "id_query_body",
        "from": "from_",
        "x-y": "x_y",
    }


async def test_what_must_be_given_can_be_given_by_position(tmp_path: Path):
    from holdfast.capabilities import signature

    told = post("application/json", {"properties": {"a": {}, "b": {}}, "required": ["b"]})
    async with opened(told, tmp_path) as api:
        assert signature(api["op"]) == "pets_op(b: Any, a: Any = ...) -> Any"


# --- bodies ---


async def test_a_plain_object_is_given_property_by_property(web: Web, tmp_path: Path):
    schema = {
        "allOf": [
            {"$ref": "#/components/schemas/Base"},
            {"type": "object", "properties": {"tag": {"type": "string"}}},
        ]
    }
    base = {
        "type": "object",
        "required": ["name", "id"],
        "properties": {"name": {"type": "string"}, "id": {"type": "integer", "readOnly": True}},
    }
    told = post("application/json", schema) | {"components": {"schemas": {"Base": base}}}
    async with opened(told, tmp_path, base_url=web.url) as api:
        assert api["op"].input_schema["required"] == [
            "name"
        ]  # what only the server sets is not asked for
        await api("op", name="Rex", tag="é")
        assert (web.last.json, web.last.headers["content-type"]) == (
            {"name": "Rex", "tag": "é"},
            "application/json",
        )
        with pytest.raises(CallerError, match="there is no `colour`"):
            await api("op", name="Rex", colour="red")


@pytest.mark.parametrize(
    "schema",
    [
        {"type": "array", "items": {"type": "integer"}},
        {"type": "object"},
        {"type": "object", "properties": {"a": {}}, "additionalProperties": True},
        {"type": "object", "properties": {"a": {}}, "required": ["b"]},
        {"oneOf": [{"type": "array"}, {"type": "object"}]},
        {"type": "object", "properties": {"a": {}}, "minProperties": 1},
        {"type": "object", "properties": {"a": {}}, "discriminator": {"propertyName": "a"}},
        True,
    ],
)
async def test_any_other_body_is_one_argument(web: Web, tmp_path: Path, schema: Any):
    async with opened(post("application/json", schema), tmp_path, base_url=web.url) as api:
        assert list(api["op"].input_schema["properties"]) == ["body"]  # type: ignore[arg-type]
        value = [1] if schema is True or schema.get("type") == "array" else {"a": 1, "b": 2}
        await api("op", body=value)
    assert web.last.json == value


async def test_a_body_that_need_not_be_there(web: Web, tmp_path: Path):
    schema = {"properties": {"a": {}, "b": {}}, "required": ["a"]}
    told = post("application/json", schema, required=False)
    async with opened(told, tmp_path, base_url=web.url) as api:
        await api("op")
        assert (web.last.body, "content-type" in web.last.headers) == (b"", False)
        with pytest.raises(CallerError, match="`a`"):
            await api("op", b=1)
        await api("op", a=1)
        assert web.last.json == {"a": 1}
    async with opened(
        post("application/json", {"properties": {"a": {}}}), tmp_path, base_url=web.url
    ) as api:
        await api("op")
        assert web.last.json == {}


async def test_a_form(web: Web, tmp_path: Path):
    schema = {"type": "object", "properties": {one: {} for one in "abcdef"}}
    told = post(
        "application/x-www-form-urlencoded",
        schema,
        encoding={"e": {"style": "deepObject", "explode": True}, "f": {"explode": False}},
    )
    async with opened(told, tmp_path, base_url=web.url) as api:
        await api("op", a="x y&é", b=[1, 2], c={"k": 1}, d=None, e={"k": [1]}, f=[1, 2])
    assert web.last.headers["content-type"] == "application/x-www-form-urlencoded"
    assert web.last.form == [
        *(("a", "x y&é"), ("b", "1"), ("b", "2"), ("c", '{"k":1}')),
        *(("e[k][0]", "1"), ("f", "1,2")),
    ]


async def test_a_form_in_parts(web: Web, tmp_path: Path):
    schema = {
        "type": "object",
        "required": ["a"],
        "properties": {
            "a": {},
            'b"\r\nc': {},
            "n": {"type": "array", "items": {"type": "string"}},
            "file": {"type": "string", "format": "binary"},
            "files": {"type": "array", "items": {"type": "string", "format": "binary"}},
        },
    }
    async with opened(post("multipart/form-data", schema), tmp_path, base_url=web.url) as api:
        assert list(api["op"].input_schema["properties"]) == ["a", "b_c", "n"]  # type: ignore[arg-type]
        await api("op", a="x\r\n--y", b_c={"k": 1}, n=["1", "2"])
    assert web.last.headers["content-type"].startswith("multipart/form-data; boundary=holdfast-")
    assert web.last.form == [
        ("a", "x\r\n--y"),
        ("b%22%0D%0Ac", '{"k":1}'),
        ("n", "1"),
        ("n", "2"),
    ]


async def test_a_file_that_must_be_sent_can_not(tmp_path: Path):
    schema = {"required": ["f"], "properties": {"f": {"type": "string", "format": "binary"}}}
    async with opened(post("multipart/form-data", schema), tmp_path) as api:
        assert api.refused == {"op": "it needs the file `f`, which can't be sent"}


async def test_text(web: Web, tmp_path: Path):
    async with opened(post("text/plain", {"type": "string"}), tmp_path, base_url=web.url) as api:
        await api("op", body="é\n")
        assert web.last.body == "é\n".encode()
        assert web.last.headers["content-type"] == "text/plain; charset=utf-8"
        with pytest.raises(CallerError, match="expected string"):
            await api("op", body=1)


async def test_the_best_kind_of_content_is_chosen(web: Web, tmp_path: Path):
    for media in ("application/vnd.pets+json", "application/json; v=2", "*/*"):
        told = post("application/xml", {})
        body = told["paths"]["/x"]["post"]["requestBody"]
        body["content"][media] = {"schema": {"type": "array"}}
        async with opened(told, tmp_path, base_url=web.url) as api:
            await api("op", body=[1])
        sent = "application/json" if media == "*/*" else media
        assert (web.last.json, web.last.headers["content-type"]) == ([1], sent)
    async with opened(post("application/xml", {}), tmp_path) as api:
        assert api.refused == {"op": "its body is `application/xml`, which can't be sent"}
    async with opened(post("application/xml", {}, required=False), tmp_path) as api:
        assert api.tools == ["op"]


async def test_the_server_recognises_a_repetition(web: Web, tmp_path: Path):
    key = {"name": "Idempotency-Key", "in": "header", "required": True, "schema": {}}
    told = document({"/x": {"post": operation(operationId="op", parameters=[key])}})
    async with opened(told, tmp_path, base_url=web.url) as api:
        assert api["op"].input_schema["properties"] == {}
        assert api["op"].idempotent
        await api("op")
    assert web.last.headers["idempotency-key"] == "eff-1"  # the effect's own name


# --- any values ---

WORD = st.text(string.printable + "é漢😀", min_size=1, max_size=6)
SCALAR = st.one_of(WORD, st.booleans(), st.integers(-(2**53), 2**53), st.floats(-1e6, 1e6))
LIST = st.lists(SCALAR, min_size=1, max_size=3)
OBJECT = st.dictionaries(WORD, SCALAR, min_size=1, max_size=3)
JSON = st.recursive(
    st.none() | SCALAR, lambda inner: st.lists(inner) | st.dictionaries(WORD, inner)
)

EVERYTHING = document(
    {
        "/a/{seg}/b": {
            "post": operation(
                operationId="op",
                parameters=[
                    {"name": "seg", "in": "path", "required": True, "schema": {}},
                    {"name": "one", "in": "query", "schema": {}},
                    {"name": "many", "in": "query", "schema": {}},
                    {"name": "deep", "in": "query", "style": "deepObject", "schema": {}},
                ],
                requestBody={
                    "content": {"application/json": {"schema": {"properties": {"payload": {}}}}}
                },
            )
        }
    }
)
FORM = post("application/x-www-form-urlencoded", {"properties": {"a": {}, "b": {}}})


def as_text(value: Any) -> str:
    """A value as a server reads it."""
    if isinstance(value, str):
        return value
    if isinstance(value, float) and value.is_integer():
        return str(int(value))
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


@settings(max_examples=60)
@given(
    seg=SCALAR.filter(
        lambda one: not {".", ".."} & set(as_text(one).replace("\\", "/").split("/"))
    ),
    one=SCALAR,
    many=LIST,
    deep=OBJECT,
    payload=JSON,
)
async def test_the_server_sees_what_was_given(
    server: Web, seg: Any, one: Any, many: Any, deep: Any, payload: Any
):
    with tempfile.TemporaryDirectory() as folder:
        async with opened(EVERYTHING, Path(folder), base_url=server.url) as api:
            await api("op", seg=seg, one=one, many=many, deep=deep, payload=payload)
    seen = server.last
    assert [unquote(part) for part in seen.path.split("/")] == ["", "a", as_text(seg), "b"]
    assert seen.query == [
        ("one", as_text(one)),
        *(("many", as_text(each)) for each in many),
        *((f"deep[{key}]", as_text(each)) for key, each in deep.items()),
    ]
    assert seen.json == {"payload": payload}


@settings(max_examples=30)
@given(a=SCALAR, b=LIST, multipart=st.booleans())
async def test_the_server_sees_the_form_that_was_given(
    server: Web, a: Any, b: Any, multipart: bool
):
    told = json.dumps(FORM)
    if multipart:
        told = told.replace("application/x-www-form-urlencoded", "multipart/form-data")
    with tempfile.TemporaryDirectory() as folder:
        async with opened(told, Path(folder), base_url=server.url) as api:
            await api("op", a=a, b=b)
    assert server.last.form == [("a", as_text(a)), *(("b", as_text(one)) for one in b)]
