"""Two hundred capabilities as companies have them: twenty systems, ten operations each, every parameter explained."""

from __future__ import annotations

import inspect
from typing import Any, Literal, NamedTuple

import holdfast

SYSTEMS = {
    "github": "issue", "jira": "ticket", "stripe": "invoice", "salesforce": "opportunity",
    "zendesk": "case", "slack": "message", "calendar": "event", "drive": "document",
    "hubspot": "contact", "shopify": "order", "warehouse": "shipment", "payroll": "payslip",
    "grafana": "dashboard", "pagerduty": "incident", "confluence": "page", "airtable": "record",
    "mail": "thread", "billing": "subscription", "crm": "account", "inventory": "article",
}  # fmt: skip
"""Each system, and what it keeps."""


class Parameter(NamedTuple):
    """One parameter of an operation."""

    name: str
    type: Any
    says: str
    default: Any = inspect.Parameter.empty


_ID = Parameter("id", str, "The {thing}'s id, as a list or a search gives it.")
_NOTIFY = Parameter("notify", bool, "Whether the people who follow the {thing} are told.", True)
_SINCE = Parameter("since", str | None, "Only what changed after this time, in ISO 8601.", None)
_PAGE = Parameter("page", int, "The page of the results, beginning with 1.", 1)
_SIZE = Parameter("page_size", int, "How many results a page has, at most 100.", 50)
_TITLE = Parameter("title", str, "A short title, which everybody sees in lists.")
_BODY = Parameter("body", str, "The text, in Markdown; mentions and links are resolved.")
_LABELS = Parameter("labels", list[str] | None, "Labels to put on the {thing}.", None)
_PERSON = Parameter(
    "assignee", str | None, "The mail address of whoever is to look after it.", None
)
_PRIORITY = Parameter(
    "priority", Literal["low", "normal", "high", "urgent"], "How soon somebody must act.", "normal"
)
_SORT = Parameter("sort", Literal["created", "updated", "title"], "What to sort by.", "updated")
_REASON = Parameter("reason", str, "Why; it is kept in the {thing}'s history.")

OPERATIONS: dict[str, tuple[str, tuple[Parameter, ...]]] = {
    "list": ("List {thing}s in {system}, newest first, one page at a time.", (_SINCE, _SORT, _PAGE, _SIZE)),
    "get": (
        "Get one {thing} from {system} with all of its fields and its history.",
        (_ID, Parameter("fields", list[str] | None, "Only these fields; all of them if left out.", None)),
    ),
    "search": (
        "Find {thing}s in {system} by words in their title and text. Quotes hold words together.",
        (Parameter("query", str, "What to look for."), _LABELS, _PERSON, _PAGE, _SIZE),
    ),
    "create": (
        "Create a new {thing} in {system} and give back its id.",
        (_TITLE, _BODY, _LABELS, _PERSON, _PRIORITY, _NOTIFY),
    ),
    "update": (
        "Change fields of one {thing} in {system}; what is left out stays as it is.",
        (_ID, _TITLE, _BODY, _LABELS, _PRIORITY, _NOTIFY),
    ),
    "comment_on": (
        "Add a comment to one {thing} in {system}, visible to everybody who can see it.",
        (_ID, _BODY, _NOTIFY),
    ),
    "assign": ("Hand one {thing} in {system} to somebody else.", (_ID, _PERSON, _REASON, _NOTIFY)),
    "close": ("Close one {thing} in {system}. It can be opened again within thirty days.", (_ID, _REASON, _NOTIFY)),
    "delete": ("Delete one {thing} from {system} for good, with its comments and attachments.", (_ID, _REASON)),
    "export": (
        "Export {thing}s from {system} into a file and give back where it is.",
        (_SINCE, _LABELS, Parameter("format", Literal["csv", "json", "xlsx"], "The kind of file.", "csv")),
    ),
}  # fmt: skip


def catalogue() -> list[Any]:
    """All of them."""
    return [
        _declared(system, thing, operation, says, parameters)
        for system, thing in SYSTEMS.items()
        for operation, (says, parameters) in OPERATIONS.items()
    ]


def _declared(
    system: str, thing: str, operation: str, says: str, parameters: tuple[Parameter, ...]
) -> Any:
    async def call(**_: Any) -> dict[str, Any]:
        return {}

    words = {"system": system, "thing": thing}
    lines = [f"    {one.name}: {one.says.format(**words)}" for one in parameters]
    call.__name__ = f"{system}_{operation}_{thing}"
    call.__doc__ = says.format(**words) + "\n\nArgs:\n" + "\n".join(lines)
    call.__annotations__ = {
        **{one.name: one.type for one in parameters},
        "return": dict[str, Any],
    }
    keyword = inspect.Parameter.KEYWORD_ONLY
    call.__signature__ = inspect.Signature(
        [
            inspect.Parameter(one.name, keyword, default=one.default, annotation=one.type)
            for one in parameters
        ]
    )
    reads = operation in ("list", "get", "search")
    return holdfast.capability(side_effect="read" if reads else "external_system")(call)
