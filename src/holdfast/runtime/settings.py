"""What can be set, and where it comes from: arguments, then `HOLDFAST_*`, then `holdfast.toml`, then defaults."""

from __future__ import annotations

import os
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal, cast

from pydantic import Field

from holdfast.contracts import Budget, Rule, SessionLimits, Setup, Verdict, parse
from holdfast.contracts._base import Asked
from holdfast.contracts.hook_config import HookConfig
from holdfast.contracts.model import ModelPrice
from holdfast.contracts.surface import SurfaceName
from holdfast.errors import CallerError
from holdfast.runtime._settings_paths import anchored
from holdfast.runtime._surface_specs import Written

FILE = "holdfast.toml"

JailMode = Literal["auto", "required", "off"]


class JournalSettings(Asked):
    """`[journal]`."""

    url: str | None = None
    """`sqlite:///path` or `memory:`; default: `journal.db` in the home folder. Also `HOLDFAST_URL`."""


class ShellSettings(Asked):
    """`[shell]`."""

    jail: JailMode = "auto"
    """`auto`: bubblewrap where it works; `required`: refuse to run without; `off`. Also `HOLDFAST_JAIL`."""
    limits: SessionLimits = SessionLimits()
    """`[shell.limits]`: what sessions may use unless they say otherwise."""


class PolicySettings(Asked):
    """`[policy]`."""

    default: Verdict = Verdict.ASK
    """What follows for a call that no rule decides and that does more than read."""
    rules: tuple[Rule, ...] = ()
    """`[[policy.rules]]`: the first whose conditions hold decides; see docs/guides/policy.md."""


class ApprovalSettings(Asked):
    """`[approvals]`."""

    inbox: bool = True
    """Whether requests wait in the inbox; without it, and without anybody to ask, all is denied."""
    command: tuple[str, ...] = ()
    """A program that is asked: it reads the request as JSON, and writes a decision."""
    timeout_ms: int = Field(default=86_400_000, ge=1)
    """How long a person has to answer, unless a rule says otherwise."""
    grant_ms: int | None = Field(default=None, ge=1)
    """How long an approval for the session holds; default: as long as the session."""


class AgentSettings(Asked):
    """`[agent]`."""

    model: str | None = Field(default=None, min_length=1)
    """`provider:name`: what `holdfast ask` and `holdfast chat` ask. Also `HOLDFAST_MODEL`."""
    fallbacks: tuple[str, ...] = ()
    """Models to go on with, in order, once the one before can't be had."""
    instructions: str = ""
    """What they are told before everything else."""
    budget: Budget | None = None
    """`[agent.budget]`: what each run may use."""
    prices: dict[str, ModelPrice] = Field(default_factory=dict)
    """`[agent.prices."provider:name"]`: what a model costs, where no list knows it or is wrong."""


class ServedAgent(AgentSettings):
    """`[agents.NAME]`: an agent that `holdfast serve` lets others run; see docs/guides/serving.md."""

    setup: Setup | None = None
    """`[agents.NAME.setup]`: what its sessions are opened with."""
    code_mode: bool = True
    """Whether it acts by writing code; else it calls each tool itself."""
    max_turns: int = Field(default=100, ge=1)
    """Model calls a run may make."""


class SecretSettings(Asked):
    """`[secrets]`."""

    env: tuple[str, ...] = ()
    """Environment variables whose values must appear nowhere: not in the journal, the output, errors or logs."""


class VaultSettings(Asked):
    """`[vault]`: where the key of the credentials comes from; see docs/guides/credentials.md."""

    key: Literal["file", "keyring", "command"] = "file"
    """`file`: one beside the vault, for your eyes only; `keyring`: the operating system's; `command`: a program's."""
    key_file: Path | None = None
    """The file of the key, if it is elsewhere."""
    command: tuple[str, ...] = ()
    """The program that prints the key: 32 bytes in base64 or hex."""


class Settings(Asked):
    """Everything that can be set."""

    home: Path = Path("~/.holdfast")
    """Where state lives. Also `HOLDFAST_HOME`."""
    journal: JournalSettings = JournalSettings()
    """The journal."""
    shell: ShellSettings = ShellSettings()
    """Code sessions."""
    session: Setup = Setup()
    """`[session]`: what sessions are opened with unless they say otherwise."""
    policy: PolicySettings = PolicySettings()
    """What may pass the gate."""
    approvals: ApprovalSettings = ApprovalSettings()
    """Who is asked, and for how long."""
    agent: AgentSettings = AgentSettings()
    """What is asked on the command line."""
    agents: dict[str, ServedAgent] = Field(default_factory=dict)
    """`[agents.NAME]`: agents that others may run by their name."""
    secrets: SecretSettings = SecretSettings()
    """What must appear nowhere."""
    vault: VaultSettings = VaultSettings()
    """Where credentials are kept."""
    hooks: tuple[HookConfig, ...] = ()
    """`[[hooks]]`: programs and addresses that are asked at points of a run; see docs/guides/hooks.md."""
    surfaces: dict[SurfaceName, Written] = Field(default_factory=dict)
    """`[surfaces.NAME]`: servers, modules and documents of tools; see docs/guides/surfaces.md."""

    @property
    def folder(self) -> Path:
        """The home folder, spelled out."""
        return self.home.expanduser().absolute()

    @classmethod
    def load(cls, config: Mapping[str, Any] | str | Path | None = None) -> Settings:
        """The settings in force: `config` is a mapping, a file, or `None` for the nearest `holdfast.toml`.

        Relative paths in a file are meant from the file's folder, all others from the working directory.
        """
        path = file_of(config)
        if isinstance(config, Mapping):
            found = dict(config)
        else:
            found = anchored(_read(path), path.absolute().parent) if path is not None else {}
        try:
            _check_policy(found.get("policy"))
            return parse(cls, _with_environment(found))
        except CallerError as why:
            raise _told(why, path) from None


def file_of(config: Mapping[str, Any] | str | Path | None) -> Path | None:
    """The file that settings come from; `None`: they come from none."""
    if isinstance(config, Mapping):
        return None
    return Path(config) if config is not None else nearest(Path.cwd())


def nearest(start: Path) -> Path | None:
    """The first `holdfast.toml` from here upwards."""
    for folder in (start, *start.parents):
        if (folder / FILE).is_file():
            return folder / FILE
    return None


def _read(path: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(path.read_text())
    except FileNotFoundError:
        raise CallerError("INVALID_ARGUMENT", f"There is no settings file `{path}`.") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, OSError) as why:
        raise CallerError(
            "INVALID_ARGUMENT", f"`{path}` can't be read: {why}.", hint="It must be TOML."
        ) from None


def _check_policy(table: object) -> None:
    """Refuse a rule that can't be understood by its id, which the place of a field in the settings does not tell."""
    if isinstance(table, Mapping):
        from holdfast.gate.policy import Policy

        Policy.load(cast("Mapping[str, object]", table))


def _told(why: CallerError, path: Path | None) -> CallerError:
    """What is wrong, with the file it is wrong in, which may be folders up, and the page that helps."""
    page = "guides/policy.md" if why.code == "POLICY_INVALID" else "reference/settings.md"
    general = why.hint is None or why.hint.endswith("in docs/reference.")
    hint = f"See docs/{page}." if general else why.hint
    message = why.message if path is None else f"`{path}`: {why.message}"
    return CallerError(why.code, message, hint=hint, span=why.span)


def _with_environment(found: dict[str, Any]) -> dict[str, Any]:
    journal = dict(found.get("journal") or {})
    shell = dict(found.get("shell") or {})
    agent = dict(found.get("agent") or {})
    merged = {**found, "journal": journal, "shell": shell, "agent": agent}
    if home := os.environ.get("HOLDFAST_HOME"):
        merged["home"] = home
    if url := os.environ.get("HOLDFAST_URL"):
        journal["url"] = url
    if jail := os.environ.get("HOLDFAST_JAIL"):
        shell["jail"] = jail
    if model := os.environ.get("HOLDFAST_MODEL"):
        agent["model"] = model
    return merged
