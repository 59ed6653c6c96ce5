"""Operations of OpenAPI documents as tools.

`OpenApiSource` is a `Source` (`capabilities/connection.py`). Read `source.py` first, then `operations.py`.
"""

from holdfast.capabilities.openapi.security import Credentials
from holdfast.capabilities.openapi.source import OpenApiConnection, OpenApiSource, Services

__all__ = ["Credentials", "OpenApiConnection", "OpenApiSource", "Services"]
