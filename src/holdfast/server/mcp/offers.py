"""What the modules of a session's capabilities offer to MCP clients beside tools: prompts and resources.

A module says so with two names of its own. `prompts` is a list of its capabilities: what one gives is the prompt.
`resources` is a dict of URIs, or URI templates, to capabilities: what one gives is the resource, and the variables of the
template are its arguments. Both are called as any capability is: through the gate, and on record.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, cast
from urllib.parse import quote, unquote

from holdfast.capabilities.declare import Declared
from holdfast.capabilities.load import home_of, load
from holdfast.contracts import Capability, Setup
from holdfast.errors import CallerError

_VARIABLE = re.compile(r"\{([A-Za-z_][A-Za-z0-9_]*)\}")


@dataclass(frozen=True, slots=True)
class Offered:
    """A resource that a capability gives."""

    uri: str
    """Its URI, or a template with variables in braces."""
    capability: Capability

    @property
    def variables(self) -> list[str]:
        """Those of the template."""
        return _VARIABLE.findall(self.uri)

    def arguments(self, uri: str) -> dict[str, str] | None:
        """The variables of a URI that the template fits; `None` when it does not."""
        parts = _VARIABLE.split(self.uri)
        pattern = "".join(
            re.escape(part) if index % 2 == 0 else f"(?P<{part}>[^/?#]+)"
            for index, part in enumerate(parts)
        )
        found = re.fullmatch(pattern, uri)
        return None if found is None else {k: unquote(v) for k, v in found.groupdict().items()}

    def filled(self, values: Mapping[str, str]) -> str:
        """The URI with these values."""
        return _VARIABLE.sub(lambda one: quote(values[one[1]], safe=""), self.uri)


@dataclass(frozen=True, slots=True)
class Offers:
    """All that the modules of a setup offer."""

    prompts: dict[str, Capability]
    """By name."""
    resources: tuple[Offered, ...]
    """In the order in which they are named."""

    @property
    def taken(self) -> set[str]:
        """Capabilities that are prompts or resources, and so no tools."""
        return {*self.prompts, *(one.capability.name for one in self.resources)}

    def resource(self, uri: str) -> tuple[Offered, dict[str, str]] | None:
        """The resource of this URI, and the arguments to read it with."""
        for one in self.resources:
            found = one.arguments(uri)
            if found is not None:
                return one, found
        return None


def offers_of(setup: Setup) -> Offers:
    """What the modules of a setup offer; raises `INVALID_ARGUMENT` for what is no capability."""
    prompts: dict[str, Capability] = {}
    resources: list[Offered] = []
    for reference in setup.capabilities:
        load(reference)
        module = sys.modules.get(home_of(reference))
        said: object = getattr(module, "prompts", None)
        if isinstance(said, list | tuple):
            for one in cast("list[object]", said):
                found = _declared(one, reference, "prompts")
                prompts[found.name] = found
        said = getattr(module, "resources", None)
        if isinstance(said, Mapping):
            named = cast("Mapping[str, object]", said)
            resources += [
                Offered(uri, _declared(o, reference, "resources")) for uri, o in named.items()
            ]
    return Offers(prompts, tuple(resources))


def _declared(value: object, reference: str, name: str) -> Capability:
    if isinstance(value, Declared):
        return cast("Declared[..., Any]", value).capability
    raise CallerError(
        "INVALID_ARGUMENT",
        f"`{name}` of `{reference[:200]}` holds what is no capability.",
        hint="Mark its functions with `@capability`.",
    )
