"""What the conformance suite expects of a server, as a module of capabilities: tools, prompts and resources."""

import json
from dataclasses import dataclass
from typing import Any

import anyio

from holdfast import capability
from holdfast.contracts.approval import Asks
from holdfast.gate.executor import Context, Question

PNG = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mP8z8DwHwAFBQIAX8jx0gAAAABJRU5ErkJggg=="
WAV = "UklGRiYAAABXQVZFZm10IBAAAAABAAEAQB8AAAB9AAACABAAZGF0YQIAAAA="

IMAGE = {"type": "image", "mime": "image/png", "data": PNG}


@capability
def test_simple_text() -> str:
    """Give text."""
    return "This is a simple text response for testing."


@capability
def test_image_content() -> Any:
    """Give an image."""
    return IMAGE


@capability
def test_audio_content() -> Any:
    """Give a sound."""
    return {"type": "audio", "mime": "audio/wav", "data": WAV}


@capability
def test_embedded_resource() -> Any:
    """Give a resource."""
    text = "This is an embedded resource content."
    return {
        "type": "resource",
        "uri": "test://embedded-resource",
        "mime": "text/plain",
        "text": text,
    }


@capability
def test_multiple_content_types() -> Any:
    """Give several things."""
    data = json.dumps({"test": "data", "value": 123})
    uri = "test://mixed-content-resource"
    return [
        {"type": "text", "text": "Multiple content types test:"},
        IMAGE,
        {"type": "resource", "uri": uri, "mime": "application/json", "text": data},
    ]


@capability
async def test_tool_with_logging() -> str:
    """Do something that is told in lines."""
    await anyio.sleep(0.05)
    return "Tool with logging executed successfully"


@capability
async def test_tool_with_progress() -> str:
    """Do something that is told as progress."""
    await anyio.sleep(0.05)
    return "done"


@capability
def test_error_handling() -> str:
    """Fail."""
    raise ValueError("This tool intentionally returns an error for testing")


@capability
async def test_reconnection() -> str:
    """Take a while."""
    await anyio.sleep(0.2)
    return "Reconnection test completed successfully."


async def _asked(context: Context, message: str, form: dict[str, Any]) -> str:
    answer = await context.ask(Question(Asks.INPUT, message, form))
    return f"User response: action={answer.action}, content={json.dumps(answer.content)}"


def _form(properties: dict[str, Any], *required: str) -> dict[str, Any]:
    return {"type": "object", "properties": properties, "required": [*required]}


@capability
async def test_elicitation(message: str, context: Context) -> str:
    """Ask a person."""
    fields = {
        "username": {"type": "string", "description": "User's response"},
        "email": {"type": "string", "description": "User's email address"},
    }
    return await _asked(context, message, _form(fields, "username", "email"))


@capability
async def test_elicitation_sep1034_defaults(context: Context) -> str:
    """Ask a person, with defaults."""
    states = ["active", "inactive", "pending"]
    fields = {
        "name": {"type": "string", "description": "User name", "default": "John Doe"},
        "age": {"type": "integer", "description": "User age", "default": 30},
        "score": {"type": "number", "description": "User score", "default": 95.5},
        "status": {"type": "string", "enum": states, "default": "active"},
        "verified": {"type": "boolean", "default": True},
    }
    return await _asked(context, "Please review the form", _form(fields))


@capability
async def test_elicitation_sep1330_enums(context: Context) -> str:
    """Ask a person to choose."""
    options = ["option1", "option2", "option3"]
    names = ["Option One", "Option Two", "Option Three"]
    titled = [{"const": f"value{n}", "title": f"Option {n}"} for n in (1, 2, 3)]
    fields: dict[str, Any] = {
        "untitledSingle": {"type": "string", "enum": options},
        "titledSingle": {"type": "string", "oneOf": titled},
        "legacyEnum": {"type": "string", "enum": ["opt1", "opt2", "opt3"], "enumNames": names},
        "untitledMulti": {"type": "array", "items": {"type": "string", "enum": options}},
        "titledMulti": {"type": "array", "items": {"anyOf": titled}},
    }
    return await _asked(context, "Please choose", _form(fields))


@dataclass
class address:
    street: str = ""
    city: str = ""


@capability
def json_schema_2020_12_tool(name: str = "", address: address | None = None) -> str:
    """Take what only JSON Schema 2020-12 describes."""
    return f"called with {name} {address}"


# -- resources ------------------------------------------------------------------------------------------


@capability
def static_text() -> Any:
    """A text."""
    return "This is the content of the static text resource."


@capability
def static_binary() -> Any:
    """An image."""
    return IMAGE


@capability
def template_data(id: str) -> Any:
    """Data of an id."""
    return {"id": id, "templateTest": True, "data": f"Data for ID: {id}"}


@capability
def watched() -> str:
    """Something to watch."""
    return "Watched resource content"


resources = {
    "test://static-text": static_text,
    "test://static-binary": static_binary,
    "test://template/{id}/data": template_data,
    "test://watched-resource": watched,
}


# -- prompts --------------------------------------------------------------------------------------------


@capability
def test_simple_prompt() -> str:
    """A simple prompt."""
    return "This is a simple prompt for testing."


@capability
def test_prompt_with_arguments(arg1: str, arg2: str) -> str:
    """A prompt with arguments.

    Args:
        arg1: First test argument.
        arg2: Second test argument.
    """
    return f"Prompt with arguments: arg1='{arg1}', arg2='{arg2}'"


@capability
def test_prompt_with_embedded_resource(resourceUri: str) -> Any:
    """A prompt with a resource in it."""
    text = "Embedded resource content for testing."
    part = {"type": "resource", "uri": resourceUri, "mime": "text/plain", "text": text}
    return [part, "Please process the embedded resource above."]


@capability
def test_prompt_with_image() -> Any:
    """A prompt with an image in it."""
    return [{"role": "user", "content": IMAGE}, "Please analyze the image above."]


prompts = [
    test_simple_prompt,
    test_prompt_with_arguments,
    test_prompt_with_embedded_resource,
    test_prompt_with_image,
]
