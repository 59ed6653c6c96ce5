"""The suite that the boxes of any language must pass. Subclass it in a test module and say what to test:

```python
from holdfast.testing import ParkingBoxConformance


class TestMyBoxes(ParkingBoxConformance):
    programs = MY_LANGUAGE  # the stories of `Programs`, told in the language

    def boxes(self):
        return MyBoxes()
```

An engine that can't be dumped while a run stands passes `BoxConformance` alone. Async tests run under anyio's pytest
plugin: set `anyio_mode = "auto"`.
"""

from __future__ import annotations

from holdfast.testing._conformance.parking import Parking
from holdfast.testing._conformance.programs import PYTHON, Programs
from holdfast.testing._conformance.stopping import Stopping

__all__ = ["PYTHON", "BoxConformance", "ParkingBoxConformance", "Programs"]


class BoxConformance(Stopping):
    """What `holdfast.shell.box` promises of runs that stop at calls. Define `boxes`."""


class ParkingBoxConformance(Stopping, Parking):
    """The same, and that a run which stands can be dumped and go on elsewhere."""
