"""How providers are spoken to: each file is one protocol, as a server sees it."""

from holdfast.testing._protocols._base import Protocol, Refusal
from holdfast.testing._protocols.anthropic import Anthropic
from holdfast.testing._protocols.google import Google
from holdfast.testing._protocols.openai_chat import OpenAIChat
from holdfast.testing._protocols.openai_responses import OpenAIResponses

PROTOCOLS: tuple[type[Protocol], ...] = (OpenAIChat, OpenAIResponses, Anthropic, Google)
"""All of them; the path of a request says which it is."""

__all__ = ["PROTOCOLS", "Protocol", "Refusal"]
