"""Secrets at rest: encrypted, bound to their names, for their owner only, and never lost."""

import base64
import json
import os
import stat
import subprocess
import sys
from pathlib import Path
from typing import Any

import anyio
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.leases.support import everything_below, vault_at

from holdfast.errors import OperatorError
from holdfast.leases import CommandKey, FileKey, FileVault, KeyringKey, MemoryVault

SECRET = "sentinel-7f3a9c"


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


async def refused(vault: FileVault, name: str = "a") -> OperatorError:
    before = everything_below(vault._path.parent)
    with pytest.raises(OperatorError) as caught:
        await vault.get(name)
    with pytest.raises(OperatorError):
        await vault.put(name, {"value": "new"})
    assert caught.value.code == "VAULT_UNAVAILABLE"
    assert caught.value.hint
    after = everything_below(vault._path.parent)
    assert {k: v for k, v in after.items() if ".locks" not in k} == {
        k: v for k, v in before.items() if ".locks" not in k
    }
    return caught.value


async def test_keeps_what_it_is_given(tmp_path: Path) -> None:
    folder = tmp_path / "home"
    await vault_at(folder).put("a", {"value": SECRET})
    vault = vault_at(folder)
    assert await vault.get("a") == {"value": SECRET}
    assert await vault.get("b") is None
    await vault.put("b", {})
    assert await vault.names() == ["a", "b"]
    await vault.remove("a")
    assert await vault.names("a") == []
    assert mode(folder) == 0o700
    assert mode(folder / "vault") == mode(folder / "vault.key") == 0o600


async def test_nothing_is_made_by_looking(tmp_path: Path) -> None:
    vault = vault_at(tmp_path / "home")
    assert await vault.get("a") is None
    assert await vault.names() == []
    assert not (tmp_path / "home").exists()


async def test_nothing_is_readable_on_disk(tmp_path: Path) -> None:
    await vault_at(tmp_path).put("a", {"value": SECRET})
    for content in everything_below(tmp_path).values():
        assert SECRET.encode() not in content
        assert base64.b64encode(SECRET.encode())[:12] not in content


async def test_entry_under_another_name_does_not_open(tmp_path: Path) -> None:
    vault = vault_at(tmp_path)
    await vault.put("a", {"value": SECRET})
    path = tmp_path / "vault"
    content = json.loads(path.read_bytes())
    content["entries"]["b"] = content["entries"]["a"]
    path.write_text(json.dumps(content))
    await refused(vault, "b")


@given(at=st.integers(0, 10_000), bit=st.integers(0, 7))
def test_one_wrong_bit_is_noticed(
    tmp_path_factory: pytest.TempPathFactory, at: int, bit: int
) -> None:
    folder = tmp_path_factory.mktemp("vault")
    codes: list[str] = []

    async def work() -> None:
        vault = vault_at(folder)
        await vault.put("a", {"value": SECRET})
        path = folder / "vault"
        data = bytearray(path.read_bytes())
        data[at % len(data)] ^= 1 << bit
        path.write_bytes(data)
        try:
            found = await vault_at(folder).get("a")
        except OperatorError as why:
            codes.append(why.code)
        else:
            # A bit of the JSON around it: the name, or a base64 character's unused bits.
            assert found in (None, {"value": SECRET})

    anyio.run(work)
    assert codes in ([], ["VAULT_UNAVAILABLE"])


@pytest.mark.parametrize("data", [b"", b"{}", b"\xff\x00", b"[1]", b'{"format":2,"key":"x"}'])
async def test_what_is_no_vault_is_left_alone(tmp_path: Path, data: bytes) -> None:
    (tmp_path / "vault").write_bytes(data)
    await refused(vault_at(tmp_path))


async def test_wrong_key_and_lost_key(tmp_path: Path) -> None:
    await vault_at(tmp_path).put("a", {"value": SECRET})
    key = tmp_path / "vault.key"
    good = key.read_bytes()
    key.write_bytes(os.urandom(32))
    assert "key at hand" in (await refused(vault_at(tmp_path))).message
    key.unlink()
    assert "gone" in (await refused(vault_at(tmp_path))).message
    assert not key.exists()
    key.write_bytes(good)
    key.chmod(0o600)
    assert await vault_at(tmp_path).get("a") == {"value": SECRET}


@pytest.mark.parametrize("permissions", [0o640, 0o604, 0o660, 0o601])
async def test_key_that_others_can_read_is_refused(tmp_path: Path, permissions: int) -> None:
    await vault_at(tmp_path).put("a", {"value": SECRET})
    (tmp_path / "vault.key").chmod(permissions)
    assert "chmod 600" in str((await refused(vault_at(tmp_path))).hint)


async def test_key_behind_a_link_or_of_another_length_is_refused(tmp_path: Path) -> None:
    await vault_at(tmp_path).put("a", {"value": SECRET})
    key = tmp_path / "vault.key"
    elsewhere = tmp_path / "elsewhere"
    key.rename(elsewhere)
    key.symlink_to(elsewhere)
    await refused(vault_at(tmp_path))
    key.unlink()
    key.write_bytes(b"short")
    key.chmod(0o600)
    await refused(vault_at(tmp_path))


async def test_failed_change_changes_nothing(tmp_path: Path) -> None:
    vault = vault_at(tmp_path)
    await vault.put("a", {"value": SECRET})

    def fails(_: object) -> None:
        raise ValueError("no")

    before = everything_below(tmp_path)
    with pytest.raises(ValueError, match="no"):
        await vault.change("a", fails)
    assert everything_below(tmp_path) == before


COUNT = """
import sys, anyio
from pathlib import Path
from typing import Any
from tests.leases.support import vault_at

async def main():
    vault = vault_at(Path(sys.argv[1]))
    for _ in range(20):
        await vault.change("n", lambda old: {"n": (old or {"n": 0})["n"] + 1})
        await vault.put(sys.argv[2], {"mine": True})

anyio.run(main)
"""


async def test_processes_lose_nothing(tmp_path: Path) -> None:
    root = Path(__file__).parents[2]
    async with anyio.create_task_group() as tasks:
        for number in range(3):
            command = [sys.executable, "-c", COUNT, str(tmp_path), f"p{number}"]
            tasks.start_soon(lambda c: anyio.run_process(c, cwd=root), command)
    vault = vault_at(tmp_path)
    assert await vault.get("n") == {"n": 60}
    assert await vault.names("p") == ["p0", "p1", "p2"]


async def test_stamp_changes_with_each_change(tmp_path: Path) -> None:
    for vault in (vault_at(tmp_path), MemoryVault()):
        seen = {vault.stamp}
        for number in range(5):
            await vault.put("a", {"n": number})
            assert vault.stamp not in seen
            seen.add(vault.stamp)


@pytest.mark.parametrize("kind", ["file", "memory"])
async def test_lock_lets_one_in_at_a_time(tmp_path: Path, kind: str) -> None:
    vault = vault_at(tmp_path) if kind == "file" else MemoryVault()
    inside: list[int] = []
    met: list[list[int]] = []

    async def enters(number: int) -> None:
        async with vault.lock("a"):
            inside.append(number)
            await anyio.sleep(0.01)
            met.append(inside.copy())
            inside.clear()

    async with anyio.create_task_group() as tasks:
        for number in range(5):
            tasks.start_soon(enters, number)
    assert sorted(met) == [[number] for number in range(5)]
    async with vault.lock("a"), vault.lock("b"):  # one does not keep the other out
        assert inside == []


# -- the key ------------------------------------------------------------------------------------------


async def test_new_key(tmp_path: Path) -> None:
    vault = vault_at(tmp_path)
    await vault.put("a", {"value": SECRET})
    old = (tmp_path / "vault.key").read_bytes()
    other = vault_at(tmp_path)
    assert await other.get("a") == {"value": SECRET}
    await vault.rekey()
    assert (tmp_path / "vault.key").read_bytes() != old
    assert not (tmp_path / "vault.key.next").exists()
    assert await other.get("a") == await vault.get("a") == {"value": SECRET}


@pytest.mark.parametrize("step", ["proposed", "written"])
async def test_change_of_keys_that_was_cut_off(
    tmp_path: Path, step: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    vault = vault_at(tmp_path)
    await vault.put("a", {"value": SECRET})

    def cut(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        if step == "proposed":
            patch.setattr(FileVault, "_write", cut)
        else:
            patch.setattr(FileKey, "accept", cut)
        with pytest.raises(KeyboardInterrupt):
            await vault.rekey()
    after = vault_at(tmp_path)
    assert await after.get("a") == {"value": SECRET}
    await after.put("b", {})
    await after.rekey()
    assert not (tmp_path / "vault.key.next").exists()
    assert await vault_at(tmp_path).names() == ["a", "b"]
    assert await vault_at(tmp_path).get("a") == {"value": SECRET}


async def test_key_from_a_command(tmp_path: Path) -> None:
    key = base64.b64encode(os.urandom(32)).decode()
    vault = FileVault(tmp_path / "vault", CommandKey(["echo", key]))
    await vault.put("a", {"value": SECRET})
    again = FileVault(tmp_path / "vault", CommandKey(["echo", base64.b64decode(key).hex()]))
    assert await again.get("a") == {"value": SECRET}
    with pytest.raises(OperatorError):
        await vault.rekey()
    await vault.rekey(FileKey(tmp_path / "vault.key"))
    assert await vault_at(tmp_path).get("a") == {"value": SECRET}


@pytest.mark.parametrize("command", [["false"], ["no-such-program-here"], ["echo", "short"], []])
async def test_command_that_gives_no_key(tmp_path: Path, command: list[str]) -> None:
    with pytest.raises(OperatorError) as caught:
        await FileVault(tmp_path / "vault", CommandKey(command)).put("a", {})
    assert caught.value.code == "VAULT_UNAVAILABLE"


async def test_key_from_the_keyring(tmp_path: Path) -> None:
    import keyring
    from keyring.backend import KeyringBackend

    class Ring(KeyringBackend):
        priority: Any = 1
        kept: dict[tuple[str, str], str] = {}  # noqa: RUF012 - of this test alone

        def get_password(self, service: str, username: str) -> str | None:
            return self.kept.get((service, username))

        def set_password(self, service: str, username: str, password: str) -> None:
            self.kept[service, username] = password

        def delete_password(self, service: str, username: str) -> None:
            del self.kept[service, username]

    before = keyring.get_keyring()
    keyring.set_keyring(Ring())
    try:
        vault = FileVault(tmp_path / "vault", KeyringKey("test"))
        await vault.put("a", {"value": SECRET})
        await vault.rekey()
        again = FileVault(tmp_path / "vault", KeyringKey("test"))
        assert await again.get("a") == {"value": SECRET}
        assert list(Ring.kept) == [("holdfast", "test")]
    finally:
        keyring.set_keyring(before)


async def test_keyring_that_is_not_there(tmp_path: Path) -> None:
    code = (
        "import anyio, keyring\n"
        "from keyring.backends import fail\n"
        "keyring.set_keyring(fail.Keyring())\n"
        "from pathlib import Path\n"
        "from holdfast.leases import FileVault, KeyringKey\n"
        f"anyio.run(FileVault(Path({str(tmp_path / 'vault')!r}), KeyringKey('x')).put, 'a', {{}})\n"
    )
    done = await anyio.to_thread.run_sync(
        lambda: subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    )
    assert "VAULT_UNAVAILABLE" in done.stderr
