"""The model that follows a script, and lines for it that read well. Needs no pytest: examples use it too.

```python
from holdfast.testing import ScriptedModel, say, write_code

model = ScriptedModel([write_code("1 + 1"), say("It is 2.")])
```
"""

from __future__ import annotations

from holdfast.models.script import after, call, cut, fail, garble, say, together, write_code
from holdfast.models.scripted import Scripted as ScriptedModel

__all__ = [
    "ScriptedModel",
    "after",
    "call",
    "cut",
    "fail",
    "garble",
    "say",
    "together",
    "write_code",
]
