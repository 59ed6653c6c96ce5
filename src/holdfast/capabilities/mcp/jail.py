"""Bubblewrap around a server that is started here.

It has no network, no other process and no files but those of the system's programs, of its own program, and the
folders that the surface names. Its environment is the clean one it would have had anyway; home and temporary files
are a folder in memory. When bubblewrap dies, everything in it does.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path

from holdfast.contracts.surface import StdioSurface
from holdfast.errors import OperatorError

HOME = "/tmp"
"""Where its home and its temporary files are."""

_PROBE_SECONDS = 10
_NOBODY = "65534"
_FLAGS = (
    "--unshare-user --unshare-all --die-with-parent --new-session --cap-drop ALL"
    f" --uid {_NOBODY} --gid {_NOBODY} --hostname box --proc /proc --dev /dev --tmpfs {HOME}"
).split()
# What programs of the system need of it. `/etc` is not among it: it says much about the host.
_SYSTEM = ("/usr", "/bin", "/lib", "/lib64", "/sbin", "/etc/alternatives", "/etc/ld.so.cache")
# What belongs to a program that lies in a folder `bin`: an environment of Python, an installed node.
_BESIDE_BIN = ("lib", "lib64", "libexec", "pyvenv.cfg")


def jailed(spec: StdioSurface, program: str) -> list[str]:
    """The command that starts the server in its jail; raises `JAIL_UNAVAILABLE`."""
    bwrap = shutil.which("bwrap")
    problem = "bubblewrap (`bwrap`) is not installed" if bwrap is None else _problem(bwrap)
    if bwrap is None or problem is not None:
        raise OperatorError(
            "JAIL_UNAVAILABLE",
            f"The jail around an MCP server can't be built: {problem}.",
            hint="Install bubblewrap and allow user namespaces, or set `jail` to false.",
        )
    where = ("--chdir", spec.cwd or HOME)
    binds = [*_system(), *_program(program), *_mounts(spec.mounts)]
    return [bwrap, *_FLAGS, *binds, *where, "--", program, *spec.args]


def jailed_environment(env: Mapping[str, str]) -> dict[str, str]:
    """The environment with folders that are there."""
    return dict(env) | {"HOME": HOME, "TMPDIR": HOME}


def _system() -> list[str]:
    found: list[str] = []
    for path in _SYSTEM:
        if os.path.islink(path):
            found += ["--symlink", os.readlink(path), path]
        else:
            found += ["--ro-bind-try", path, path]
    return found


def _program(program: str) -> list[str]:
    found: list[str] = []
    # A link's name counts, too: an environment of Python is found by it.
    for path in dict.fromkeys((Path(program), Path(program).resolve())):
        beside = (
            [path.parent.parent / one for one in _BESIDE_BIN] if path.parent.name == "bin" else []
        )
        for one in (path, *beside):
            if not one.is_relative_to("/usr"):
                found += ["--ro-bind-try", str(one), str(one)]
    return found


def _mounts(mounts: Sequence[str]) -> list[str]:
    found: list[str] = []
    for mount in mounts:
        path, writable = mount.removesuffix(":rw"), mount.endswith(":rw")
        full = str(Path(path).expanduser().absolute())
        found += ["--bind" if writable else "--ro-bind", full, full]
    return found


@cache
def _problem(bwrap: str) -> str | None:
    """Why a jail can't be built here: that it is installed says little."""
    try:
        done = subprocess.run(
            [bwrap, *_FLAGS, *_system(), "--", "/bin/sh", "-c", ":"],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            env={},
            timeout=_PROBE_SECONDS,
            check=False,
        )
    except OSError as why:
        return str(why.strerror)
    except subprocess.TimeoutExpired:
        return "starting it takes too long"
    if done.returncode == 0:
        return None
    said = done.stderr.decode(errors="replace").strip().splitlines()
    return said[-1][:200] if said else f"bubblewrap ended with {done.returncode}"
