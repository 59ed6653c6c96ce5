"""The files of the deployment guide: their options are there, and the programs that read them accept them.

That code runs under the unit needs a systemd, which machines for tests have not; what is known to break the jail is
looked for instead.
"""

import re
import subprocess
import sys
from configparser import RawConfigParser
from pathlib import Path

from tests.docs.test_examples import ROOT, blocks

from holdfast.server.metrics import Metrics

GUIDE = ROOT / "docs/guides/deployment.md"
FILES = {block.value: block.text for block in blocks(GUIDE.read_text()) if block.key == "file"}
HOLDFAST = Path(sys.executable).with_name("holdfast")


class Unit(RawConfigParser):
    """Names keep their case."""

    def optionxform(self, optionstr: str) -> str:
        return optionstr


def unit() -> dict[str, str]:
    parser = Unit(strict=False)
    parser.read_string(FILES["holdfast.service"])
    return dict(parser["Service"])


def test_unit_uses_options_that_exist():
    help_text = subprocess.run(
        [HOLDFAST, "serve", "--help"], capture_output=True, text=True, check=True
    ).stdout
    flags = re.findall(r"--[\w-]+", unit()["ExecStart"])
    assert flags
    assert [flag for flag in flags if flag not in help_text] == []


def test_unit_lets_bubblewrap_build_the_jail():
    said = unit()
    assert {"@mount", "sethostname"} <= set(said["SystemCallFilter"].split())
    assert "AF_NETLINK" in said["RestrictAddressFamilies"].split()
    forbidden = {
        "ProtectHostname",
        "RestrictNamespaces",
        "ProcSubset",
        "ProtectKernelTunables",
        "ProtectKernelLogs",
    }
    assert forbidden.isdisjoint(said)
    assert said["KillMode"] == "mixed"


def test_figures_that_operations_names_are_there():
    known = set(
        re.findall(
            r'"(holdfast_\w+)"', Path(sys.modules[Metrics.__module__].__file__ or "").read_text()
        )
    )
    said = set(re.findall(r"holdfast_\w+", (ROOT / "docs/guides/operations.md").read_text()))
    assert sorted(said - known) == []
