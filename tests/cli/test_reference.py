"""docs/reference/cli.md names every command, every option of it, and every method of the daemon."""

import re
from pathlib import Path

import pytest
import typer

from holdfast.cli._agent_flags import AgentFlags
from holdfast.cli._setup import Flags
from holdfast.cli.main import COMMANDS, app
from holdfast.server import methods

TEXT = (Path(__file__).parents[2] / "docs/reference/cli.md").read_text()
OPENING = "[Opening a session](#opening-a-session)"
AGENT = "[Which agent](#which-agent)"
EVERYWHERE = {"--help", "-h", "--json", "--no-json"}


def commands() -> dict[str, list[str]]:
    """Every command and its options."""
    found: dict[str, list[str]] = {}
    program = typer.main.get_command(app(*COMMANDS))

    def walk(command, path: str) -> None:
        inner = getattr(command, "commands", None)
        if inner is not None:
            for name, one in inner.items():
                walk(one, f"{path} {name}")
            return
        found[path] = [
            flag
            for one in command.params
            for flag in (*one.opts, *one.secondary_opts)
            if flag.startswith("-") and flag not in EVERYWHERE
        ]

    walk(program, "holdfast")
    return found


FOUND = commands()


def section(command: str) -> str:
    match = re.search(rf"^### `{command}`\n(.*?)(?=^##)", TEXT + "\n##", re.MULTILINE | re.DOTALL)
    assert match, f"`{command}` has no heading"
    return match[1]


def flags_of_opening() -> set[str]:
    return _options_under("## Opening a session")


def flags_of_the_agent() -> set[str]:
    return _options_under("## Which agent")


def _options_under(heading: str) -> set[str]:
    part = TEXT.partition(f"\n{heading}\n")[2].partition("\n## ")[0]
    return set(re.findall(r"--[a-z][a-z-]*", part))


@pytest.mark.parametrize("command", FOUND)
def test_a_command_and_its_options_are_documented(command: str):
    text = section(command)
    said = set(re.findall(r"(?<![\w-])--?[a-z][a-z-]*", text))
    if OPENING in text:
        said |= flags_of_opening()
    if AGENT in text:
        said |= flags_of_the_agent()
    assert sorted(set(FOUND[command]) - said) == []


def test_the_options_of_opening_are_those_there_are():
    assert flags_of_opening() == {
        *("--capabilities", "--mount", "--allow-host", "--database", "--clock", "--no-clock"),
        *("--randomness", "--no-randomness", "--policy", "--budget", "--ttl"),
    }
    assert len(Flags._fields) == 9


def test_the_options_of_the_agent_are_those_there_are():
    assert flags_of_the_agent() == {
        *("--model", "--fallback", "--instructions", "--tools", "--code", "--run-budget"),
        *("--max-turns", "--timeout"),
    }
    assert len(AgentFlags._fields) == 7


def test_nothing_is_documented_that_is_not_there():
    assert sorted(re.findall(r"^### `(.*)`$", TEXT, re.MULTILINE)) == sorted(FOUND)


def test_every_method_is_documented():
    source = Path(methods.__file__).read_text()
    for name in re.findall(r'"([a-z]+\.[a-z]+)": Method', source):
        assert f"`{name}`" in TEXT, name


@pytest.mark.parametrize("name", COMMANDS)
def test_the_list_of_commands_is_true(name: str):
    """What `--help` says without importing a command is what the command says of itself."""
    program = typer.main.get_command(app(name))
    command = program.commands[name]  # type: ignore[attr-defined]
    assert (getattr(command, "commands", None) is not None) is COMMANDS[name].group
    assert command.help
    assert COMMANDS[name].help.split()[0] == command.help.split()[0]
