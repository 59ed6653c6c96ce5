"""What code can call: declared in Python, gathered in sets, described to the model, found by search."""

from holdfast.capabilities.declare import Declared, capability
from holdfast.capabilities.foreign import Foreign
from holdfast.capabilities.load import load
from holdfast.capabilities.registry import CapabilitySet, Difference
from holdfast.capabilities.search import Index
from holdfast.capabilities.stubs import python_stubs, signature

__all__ = [
    "CapabilitySet",
    "Declared",
    "Difference",
    "Foreign",
    "Index",
    "capability",
    "load",
    "python_stubs",
    "signature",
]
