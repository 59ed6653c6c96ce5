"""The suite that any model must pass. Subclass it in a test module, and say how the model is made to follow a script:

```python
from contextlib import asynccontextmanager

from holdfast.testing import ModelConformance, ProviderServer


class TestMyModel(ModelConformance):
    @asynccontextmanager
    async def model(self, script):
        with ProviderServer(script) as server:  # for one that speaks HTTP
            yield MyModel(base_url=server.url)
```

Async tests run under anyio's pytest plugin: set `anyio_mode = "auto"`.
"""

from __future__ import annotations

from holdfast.testing._conformance.models import FAILURES, Answering, Ending, Failing

__all__ = ["FAILURES", "ModelConformance"]


class ModelConformance(Answering, Failing, Ending):
    """What `holdfast.models.base` promises of every model. Define `model`."""
