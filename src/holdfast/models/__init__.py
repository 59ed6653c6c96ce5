"""What answers: the seam, the model that follows a script, and the providers, which are imported on first use."""

from holdfast.models.base import Model
from holdfast.models.catalog import close, estimate, model
from holdfast.models.scripted import Scripted
from holdfast.models.tokens import TokenCounter, by_bytes, message_tokens, request_tokens

__all__ = [
    "Model",
    "Scripted",
    "TokenCounter",
    "by_bytes",
    "close",
    "estimate",
    "message_tokens",
    "model",
    "request_tokens",
]
