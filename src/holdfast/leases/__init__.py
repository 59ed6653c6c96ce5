"""Credentials as leases: fetched for each call, renewed before they expire, encrypted at rest, seen by nobody else.

vault.py, keys.py       secrets at rest, and the key that opens them
credential.py           what is kept, what is handed out
broker.py               THE file to read: `use`, one renewal for N callers, every step on record
renewing.py, oauth.py   how a new one is got without a person
logins.py               signing in: begun here, finished anywhere   (discovery.py, loopback.py)
http_auth.py            requests that bring their credential, and what a 401 means
"""

from __future__ import annotations

from holdfast.leases._secrets import Redact
from holdfast.leases.broker import Broker
from holdfast.leases.credential import (
    Client,
    CommandRenewal,
    Credential,
    Given,
    OAuthRenewal,
    Server,
    host_of,
)
from holdfast.leases.discovery import Challenge
from holdfast.leases.flow import Ask, Flow
from holdfast.leases.keys import CommandKey, FileKey, KeyringKey, KeySource
from holdfast.leases.logins import Logins
from holdfast.leases.oauth import TokenRefused
from holdfast.leases.vault import FileVault, MemoryVault, Vault

__all__ = [
    "Broker",
    "Credential",
    "Given",
    "Client",
    "Server",
    "OAuthRenewal",
    "CommandRenewal",
    "host_of",
    "Logins",
    "Ask",
    "Flow",
    "Challenge",
    "TokenRefused",
    "Redact",
    "Vault",
    "FileVault",
    "MemoryVault",
    "KeySource",
    "FileKey",
    "KeyringKey",
    "CommandKey",
]
