"""Bubblewrap around a worker.

It gets user, process, network, mount, IPC and host name spaces of its own; no capabilities, no environment; and
a read-only root that holds the worker and the libraries it is linked against, nothing else.

An engine starts its workers itself and takes only the path of a program. So the command is written into a
script in a private folder. Whether it works is found out by running it: that bubblewrap is installed says
little, because many containers and some distributions forbid user namespaces.

Run by root, the worker becomes `nobody` before bubblewrap starts: inside its user namespace it would be 65534
anyway, but to the kernel it would still be root's process.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import tempfile
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import NamedTuple

from holdfast.errors import OperatorError
from holdfast.shell.box import Jail
from holdfast.shell.confine.launcher import Launcher
from holdfast.shell.confine.none import unconfined

NOBODY = "65534"

_PROBE_SECONDS = 10
_FOLDER = "holdfast-worker-"
# `=> /lib/libc.so.6 (0x…)`, and the loader's own line without an arrow.
_LIBRARY = re.compile(r"(/\S+) \(0x[0-9a-f]+\)")
# Only where the linker can't be asked: everything a worker could be linked against.
_LIBRARY_FOLDERS = ("/lib", "/lib64", "/usr/lib", "/usr/lib64")

_FLAGS = (
    "--unshare-user --unshare-all --die-with-parent --new-session --cap-drop ALL --clearenv"
    f" --uid {NOBODY} --gid {NOBODY} --hostname box"
).split()

# Core dumps would write the heap to the host's disk; a worker opens no files and writes none. Its complaints
# go nowhere: they would appear in the middle of the host's own output.
_SCRIPT = """\
#!/bin/sh
ulimit -c 0; ulimit -f 0; ulimit -n 64
[ "$1" = --version ] || exec 2>/dev/null
exec {command} "$@"
"""


class _Variant(NamedTuple):
    """One way to build the jail, and what it lacks."""

    drop: bool
    nested: bool
    lacks: str


def confine(worker: str, jail: Jail) -> Launcher:
    """A launcher for `worker`, jailed as far as `jail` wants and this machine can.

    Raises `JAIL_UNAVAILABLE` when the jail is required and can't be built.
    """
    if jail == "off":
        return _mortal(worker, "switched off")
    found = _working(worker)
    if isinstance(found, str):
        if jail == "required":
            raise OperatorError(
                "JAIL_UNAVAILABLE",
                f"The jail around workers can't be built: {found}.",
                hint="Install bubblewrap and allow user namespaces, or set the jail to `auto` or `off`.",
            )
        return _mortal(worker, found)
    command, lacks = found
    try:
        return replace(_written(command), reason=lacks)
    except OSError as why:
        raise OperatorError(
            "JAIL_UNAVAILABLE",
            f"The script that starts jailed workers can't be written: {why.strerror}.",
            hint="`TMPDIR` must name a folder that can be written.",
        ) from None


def _mortal(worker: str, reason: str) -> Launcher:
    """The worker without a jail, which at least dies with its host: one that computes for ever would not notice."""
    plain = unconfined(worker, reason)
    command = _ending(worker)
    if command is None:
        return plain
    try:
        return replace(_written(command), jail="none", reason=reason)
    except OSError:
        return plain


@cache
def _ending(worker: str) -> tuple[str, ...] | None:
    setpriv = shutil.which("setpriv")
    command = (setpriv or "", "--pdeathsig", "KILL", "--", worker)
    return command if setpriv is not None and _probe(command) is None else None


@cache
def _working(worker: str) -> tuple[tuple[str, ...], str] | str:
    """The strongest command that starts the worker here and what it lacks, or why there is none."""
    bwrap = shutil.which("bwrap")
    if bwrap is None:
        return "bubblewrap (`bwrap`) is not installed"
    binds = _binds(worker)
    problem = None
    for variant in _variants():
        command = _command(bwrap, worker, binds, variant)
        if command is None:
            continue
        problem = _probe(command)
        if problem is None:
            return command, variant.lacks
    return problem or "`setpriv` is not installed"


def _variants() -> list[_Variant]:
    nested = "user namespaces inside the jail can't be forbidden: bubblewrap is too old for it, or /proc/sys is read-only"
    ways = [_Variant(False, False, ""), _Variant(False, True, nested)]
    if os.geteuid() != 0:
        return ways
    kept = "workers run as root, who alone can read the engine or make user namespaces"
    dropping = [way._replace(drop=True) for way in ways]
    return dropping + [
        way._replace(lacks="; ".join(filter(None, (kept, way.lacks)))) for way in ways
    ]


def _command(
    bwrap: str, worker: str, binds: tuple[str, ...], variant: _Variant
) -> tuple[str, ...] | None:
    drop: tuple[str, ...] = ()
    if variant.drop:
        setpriv = shutil.which("setpriv")
        if setpriv is None:
            return None
        drop = (setpriv, f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups", "--")
    flags = _FLAGS if variant.nested else [*_FLAGS, "--disable-userns"]
    inside = ("--ro-bind", worker, "/worker", *binds, "--remount-ro", "/", "--chdir", "/")
    return (*drop, bwrap, *flags, *inside, "--", "/worker")


def _binds(worker: str) -> tuple[str, ...]:
    """Arguments that make the worker's libraries visible, each where the worker looks for it."""
    try:
        said = subprocess.run(
            ["ldd", worker], capture_output=True, text=True, timeout=_PROBE_SECONDS, check=True
        ).stdout
    except (OSError, subprocess.SubprocessError):
        said = ""
    wanted = _LIBRARY.findall(said)
    if wanted:
        return tuple(
            part for path in wanted for part in ("--ro-bind", os.path.realpath(path), path)
        )
    return tuple(part for path in _LIBRARY_FOLDERS for part in ("--ro-bind-try", path, path))


def _probe(command: tuple[str, ...]) -> str | None:
    """Start the worker as it will be started; why it failed, or `None`."""
    try:
        launcher = _written(command)
    except OSError as why:
        return f"no script can be written to the temporary folder: {why.strerror}"
    try:
        done = subprocess.run(
            [launcher.program, "--version"],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            env={},
            timeout=_PROBE_SECONDS,
            check=False,
        )
    except OSError as why:
        return f"scripts in the temporary folder can't be executed: {why.strerror}"
    except subprocess.TimeoutExpired:
        return "starting a jailed worker takes too long"
    finally:
        remove(launcher)
    if done.returncode == 0:
        return None
    said = done.stderr.decode(errors="replace").strip().splitlines()
    return said[-1][:200] if said else f"bubblewrap ended with {done.returncode}"


def _written(command: tuple[str, ...]) -> Launcher:
    _sweep()
    folder = Path(tempfile.mkdtemp(prefix=f"{_FOLDER}{os.getpid()}-"))  # private: mode 0700
    script = folder / "worker"
    script.write_text(_SCRIPT.format(command=shlex.join(command)))
    script.chmod(0o500)
    return Launcher(str(script), "bubblewrap", folder=str(folder))


def _sweep() -> None:
    """Remove what processes left behind that were killed before they could."""
    for folder in Path(tempfile.gettempdir()).glob(f"{_FOLDER}*"):
        pid = folder.name.removeprefix(_FOLDER).partition("-")[0]
        try:
            ours = folder.lstat().st_uid == os.getuid()
        except FileNotFoundError:
            continue  # somebody else has just removed it
        if ours and pid.isdigit() and not Path(f"/proc/{pid}").exists():
            shutil.rmtree(folder, ignore_errors=True)


def remove(launcher: Launcher) -> None:
    """Remove what was written to start workers."""
    if launcher.folder is not None:
        shutil.rmtree(launcher.folder, ignore_errors=True)
