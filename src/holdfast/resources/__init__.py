"""Big things by reference: anything with a URI, read in parts. `source.py` is the seam, `resources.py` the front door."""

from holdfast.resources.resources import Keep, Resources
from holdfast.resources.router import Route, Router
from holdfast.resources.source import Held, Lister, Resolver, Source
from holdfast.resources.tools import resource_tools

__all__ = [
    "Held",
    "Keep",
    "Lister",
    "Resolver",
    "Resources",
    "Route",
    "Router",
    "Source",
    "resource_tools",
]
