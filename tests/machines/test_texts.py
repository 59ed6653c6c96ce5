"""Every text a model reads: `machines.md` §4.2, §7.3 and §18, to the letter."""

import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.contracts.canonical import digest
from holdfast.errors import CallerError
from holdfast.machines import texts
from holdfast.machines.texts import Fence, Prefix, ProgressPhase, TerminalStatus, terminal_fact

PEER = "018f6f79-7a82-7c4e-a552-a3b86f9630f1"
REQUEST = "018f6f79-0000-7000-8000-000000000001"
HOW = (
    ' Use status="failed" instead of "completed" when the request cannot be fulfilled, and include'
    " result only when the request contract provides a typed result payload."
)
ANALYST = (
    'Reply with send_response with arguments {"display_name":"Analyst",'
    f'"in_reply_to":"{REQUEST}","peer_id":"{PEER}","status":"completed"}}.{HOW}'
)
NAMELESS = (
    "Reply with send_response with arguments"
    f' {{"in_reply_to":"{REQUEST}","peer_id":"{PEER}","status":"completed"}}.{HOW}'
)
PARAMS = {"z": [1, {"ü": None}], "a": "x"}
PRETTY = '{\n  "a": "x",\n  "z": [\n    1,\n    {\n      "ü": null\n    }\n  ]\n}'


# -- payloads and instructions ------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, "null"),
        ({}, "{}"),
        ([], "[]"),
        ("ü", '"ü"'),
        (1.5, "1.5"),
        (True, "true"),
        (PARAMS, PRETTY),
    ],
)
def test_payload(value: Any, text: str):
    assert texts.payload(value) == text


def test_a_payload_is_json():
    with pytest.raises(ValueError, match="not JSON compliant"):
        texts.payload(float("nan"))


def test_instruction_worked_vector():
    assert texts.instruction(PEER, REQUEST, " Analyst ") == ANALYST


@pytest.mark.parametrize(
    ("name", "shown"),
    [
        (None, ""),
        ("", ""),
        (" \t ", ""),
        ("Analyst", '"display_name":"Analyst",'),
        ('A "b" \\', '"display_name":"A \\"b\\" \\\\",'),
        ("Zoë 分析", '"display_name":"Zoë 分析",'),
    ],
)
def test_instruction_with_names_blank_padded_quoted_or_non_ascii(name: str | None, shown: str):
    expected = NAMELESS.replace('{"in_reply_to"', "{" + shown + '"in_reply_to"')
    assert texts.instruction(PEER, REQUEST, name) == expected


# -- what a peer sent ---------------------------------------------------------------------------------


def test_message():
    assert texts.message_prefix("ana") == "[COMMS MESSAGE from ana]"
    assert texts.message("ana", "hello\nyou") == "[COMMS MESSAGE from ana]\nhello\nyou"


def test_request():
    assert texts.request(PEER, REQUEST, "review", PARAMS, " Analyst ") == (
        f"[COMMS REQUEST from peer_id {PEER} (display_name: Analyst) (id: {REQUEST})]\n"
        f"Intent: review\nParams: {PRETTY}\n\n"
        f"This is a correlated peer request. {ANALYST}"
        " Do not answer this request with send_message."
    )


@pytest.mark.parametrize("params", [None, {}])
def test_request_without_name_and_params(params: Any):
    assert texts.request(PEER, REQUEST, "review", params) == (
        f"[COMMS REQUEST from peer_id {PEER} (id: {REQUEST})]\n"
        "Intent: review\n\n"
        f"This is a correlated peer request. {NAMELESS}"
        " Do not answer this request with send_message."
    )


@pytest.mark.parametrize("params", [[], 0, False, ""])
def test_only_null_and_the_empty_object_are_left_out(params: Any):
    assert f"Params: {texts.payload(params)}\n" in texts.request(PEER, REQUEST, "review", params)


def test_response():
    head = f"[COMMS RESPONSE from ana (to request: {REQUEST})]\nStatus: completed"
    assert texts.response("ana", REQUEST, "completed", PARAMS) == f"{head}\nResult: {PRETTY}"
    assert texts.response("ana", REQUEST, "completed", None) == head
    assert texts.response("ana", REQUEST, "completed", {}) == head


def test_ack():
    assert texts.ack("ana", REQUEST) == f"[COMMS ACK from ana (to request: {REQUEST})]"


@pytest.mark.parametrize(
    ("body", "text"),
    [
        ("  hello \n", "[EVENT via stdin] hello"),
        ("", "[EVENT via stdin]"),
        (" \n", "[EVENT via stdin]"),
    ],
)
def test_event(body: str, text: str):
    assert texts.event("stdin", body) == text


# -- notices ------------------------------------------------------------------------------------------


def test_prefixes():
    assert [prefix.value for prefix in Prefix] == [
        "[SYSTEM NOTICE]",
        "[SYSTEM NOTICE][MCP_PENDING]",
        "[SYSTEM NOTICE][BG_JOB]",
        "[SYSTEM NOTICE][TOOL_SCOPE]",
        "[SYSTEM NOTICE][TOOL_SCOPE][WARNING]",
        "[SYSTEM NOTICE][AUTH_REAUTH_REQUIRED]",
        "[SYSTEM NOTICE][PEER_REQUEST]",
        "[SYSTEM NOTICE][PEER_RESPONSE_PROGRESS]",
        "[SYSTEM NOTICE][PEER_RESPONSE_TERMINAL]",
    ]
    assert texts.notice(Prefix.GENERIC, "hello") == "[SYSTEM NOTICE] hello"


def test_request_notice():
    assert texts.request_notice(PEER, REQUEST, "review", PARAMS, "Analyst") == (
        f"[SYSTEM NOTICE][PEER_REQUEST] Correlated peer request from peer_id {PEER}"
        f" (display_name: Analyst). Intent: review. Request ID: {REQUEST}. Params: {PRETTY}."
        " This is not a normal user request and not a prompt for direct user-facing output."
        f" {ANALYST} Do not use send_message for this reply."
    )
    assert texts.request_notice(PEER, REQUEST, "review", None) == (
        f"[SYSTEM NOTICE][PEER_REQUEST] Correlated peer request from peer_id {PEER}."
        f" Intent: review. Request ID: {REQUEST}. Params: null."
        " This is not a normal user request and not a prompt for direct user-facing output."
        f" {NAMELESS} Do not use send_message for this reply."
    )


@pytest.mark.parametrize(
    ("phase", "word"),
    [
        (ProgressPhase.ACCEPTED, "accepted"),
        (ProgressPhase.IN_PROGRESS, "in_progress"),
        (ProgressPhase.PARTIAL_RESULT, "partial_result"),
    ],
)
def test_progress_notice(phase: ProgressPhase, word: str):
    assert texts.progress_notice("ana", REQUEST, phase, PARAMS) == (
        "[SYSTEM NOTICE][PEER_RESPONSE_PROGRESS] Correlated peer response progress from ana."
        f" Request ID: {REQUEST}. Phase: {word}. Payload: {PRETTY}."
    )


@pytest.mark.parametrize(
    ("status", "word"),
    [
        (TerminalStatus.COMPLETED, "completed"),
        (TerminalStatus.FAILED, "failed"),
        (TerminalStatus.CANCELLED, "cancelled"),
    ],
)
def test_terminal_notice(status: TerminalStatus, word: str):
    fact = terminal_fact(None, "route", "ana", REQUEST, status, None)
    assert texts.terminal_notice(fact) == (
        "[SYSTEM NOTICE][PEER_RESPONSE_TERMINAL] Correlated peer response from ana."
        f" Request ID: {REQUEST}. Status: {word}. Result: null."
    )


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (
            texts.servers_connecting(["a", "b"]),
            "[SYSTEM NOTICE][MCP_PENDING] Servers connecting: a, b. Tools will appear when ready.",
        ),
        (
            texts.background_job("build", "j1", "completed", "exit 0"),
            "[SYSTEM NOTICE][BG_JOB] Background job `build` (id=j1) completed: exit 0\n"
            "Use shell_job_status to get the full output.",
        ),
        (
            texts.tools_changed("2 added"),
            "[SYSTEM NOTICE][TOOL_SCOPE] Tool configuration changed at turn boundary: 2 added",
        ),
        (
            texts.deferred_catalog_changed("1 added"),
            "[SYSTEM NOTICE][TOOL_SCOPE] Deferred catalog changed at turn boundary: 1 added",
        ),
        (
            texts.tool_scope_failed("gone"),
            "[SYSTEM NOTICE][TOOL_SCOPE][WARNING] Tool scope apply failed (gone); closing the"
            " visible tool set until the next boundary.",
        ),
        (
            texts.reauth_required("home:mail"),
            "[SYSTEM NOTICE][AUTH_REAUTH_REQUIRED] The credential `home:mail` is no longer"
            " accepted. Somebody has to sign in again.",
        ),
        (
            texts.EXTRACTION_PROMPT,
            "Provide the final output as valid JSON matching the required schema. Output ONLY the"
            " JSON, no additional text or markdown formatting.",
        ),
        (
            texts.extraction_retry("Invalid JSON: x"),
            "The previous output was invalid: Invalid JSON: x. Please provide valid JSON matching"
            " the schema. Output ONLY the JSON, no additional text.",
        ),
    ],
)
def test_notices(text: str, expected: str):
    assert text == expected


# -- untrusted payloads -------------------------------------------------------------------------------


def test_a_fenced_payload():
    assert texts.response("ana", REQUEST, "completed", {"a": 1}, fence=Fence()) == (
        f"[COMMS RESPONSE from ana (to request: {REQUEST})]\nStatus: completed\n"
        'Result (untrusted peer content):\n```json\n{\n  "a": 1\n}\n```'
    )
    request = texts.request(PEER, REQUEST, "review", {"a": 1}, fence=Fence())
    block = '\nParams (untrusted peer content):\n```json\n{\n  "a": 1\n}\n```\n'
    assert f"Intent: review{block}\nThis is a correlated" in request
    notice = texts.request_notice(PEER, REQUEST, "review", {"a": 1}, fence=Fence())
    assert f"Request ID: {REQUEST}. {block[1:]}This is not a normal" in notice
    progress = texts.progress_notice(
        "ana", REQUEST, ProgressPhase.ACCEPTED, {"a": 1}, fence=Fence()
    )
    assert progress.endswith('Payload (untrusted peer content):\n```json\n{\n  "a": 1\n}\n```')
    fact = terminal_fact(None, "route", "ana", REQUEST, TerminalStatus.FAILED, None)
    terminal = texts.terminal_notice(fact, fence=Fence())
    assert terminal.endswith("Result (untrusted peer content):\n```json\nnull\n```")


def test_a_long_payload_is_cut_and_the_rest_named():
    whole = '"' + "é" * 20 + '"'
    assert texts.response("ana", REQUEST, "failed", "é" * 20, fence=Fence(max_bytes=4)).endswith(
        # The fourth byte is the first half of a character.
        f'```json\n"é\n```\n[cut after 4 of 42 bytes; all of it: {digest(whole.encode())}]'
    )
    at_the_limit = texts.response("ana", REQUEST, "failed", "é" * 20, fence=Fence(max_bytes=42))
    assert at_the_limit.endswith(f"```json\n{whole}\n```")


def test_the_cap_is_16_kib():
    assert Fence().max_bytes == 16_384


def test_a_payload_that_is_no_unicode_text_can_be_cut():
    text = texts.response("ana", REQUEST, "failed", "\ud800" * 9, fence=Fence(max_bytes=7))
    assert "[cut after 7 of 29 bytes" in text


json_values = st.recursive(
    st.one_of(st.none(), st.integers(), st.text("`\n a", max_size=12)),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(st.text("`a"), inner)),
    max_leaves=8,
)


@given(json_values, st.integers(0, 60))
def test_a_payload_can_not_close_its_fence(value: Any, max_bytes: int):
    fact = terminal_fact(None, "route", "ana", REQUEST, TerminalStatus.COMPLETED, value)
    text = texts.terminal_notice(fact, fence=Fence(max_bytes))
    _, _, block = text.partition(":\n")
    marks = re.match("`+", block)
    assert marks is not None
    # The mark occurs where the block opens and where it closes, and nowhere in between.
    assert len(re.findall(rf"(?<!`){marks[0]}(?!`)", text)) == 2


# -- the typed parts of a terminal answer -------------------------------------------------------------


def fact(
    transport: str | None = "tcp",
    route: str = "route",
    display: str | None = "ana",
    correlation_id: str = REQUEST,
) -> texts.TerminalFact:
    return terminal_fact(transport, route, display, correlation_id, TerminalStatus.COMPLETED, 1)


def test_a_terminal_fact_keeps_its_parts_as_they_came():
    found = fact(" t ", " r ", " d ", REQUEST.upper())
    assert found == (" t ", " r ", " d ", REQUEST, TerminalStatus.COMPLETED, 1)
    assert fact(None).transport is None
    assert fact(correlation_id=REQUEST.replace("-", "")).correlation_id == REQUEST


def test_a_terminal_fact_has_a_context_key():
    assert fact().context_key == f"peer_response_terminal:route:{REQUEST}"


@pytest.mark.parametrize(
    ("parts", "error"),
    [
        ({"transport": ""}, "transport identity cannot be empty"),
        ({"transport": " \t"}, "transport identity cannot be empty"),
        ({"route": " "}, "route identity cannot be empty"),
        ({"route": "a\x00b"}, "route identity cannot contain control characters"),
        ({"display": None}, "display identity is required"),
        ({"display": ""}, "display identity cannot be empty"),
        ({"display": "a\nb"}, "display identity cannot contain control characters"),
        ({"correlation_id": " "}, "correlation id cannot be empty"),
        ({"correlation_id": "x-1"}, "correlation id must be a UUID: x-1"),
        ({"correlation_id": REQUEST + "0"}, f"correlation id must be a UUID: {REQUEST}0"),
        (
            {"correlation_id": REQUEST.replace("-", "", 1)},
            f"correlation id must be a UUID: {REQUEST.replace('-', '', 1)}",
        ),
        # Parsed one by one: the first error wins.
        (
            {"transport": "", "route": "", "display": None, "correlation_id": ""},
            "transport identity cannot be empty",
        ),
        (
            {"route": "", "display": None, "correlation_id": ""},
            "route identity cannot be empty",
        ),
        ({"display": None, "correlation_id": ""}, "display identity is required"),
    ],
)
def test_the_parts_of_a_terminal_fact_are_checked(parts: dict[str, Any], error: str):
    with pytest.raises(CallerError) as caught:
        fact(**parts)
    assert caught.value.message == error
    assert caught.value.code == "INVALID_ARGUMENT"


def test_only_blankness_is_tested_on_the_transport_identity():
    assert fact("a\x00b").transport == "a\x00b"
