"""Whom the embedded PostgreSQL lets in, and how: its pg_hba.conf and pg_ident.conf.

Owns: those two files. Everybody proves a password, but for users who prove themselves to the server by a certificate:
as those this process comes in through the cluster's own sockets, never as the superuser.
Must not know: how the server proves users. ``cluster`` is its only user. Start reading at ``write_access``.
"""

from __future__ import annotations

import os
import pwd
from collections.abc import Collection
from pathlib import Path

from pgstream.embedded.child import User
from pgstream.errors import ConfigurationError
from pgstream.names import quote_always

_PASSWORD = ["local all all scram-sha-256", "host all all 127.0.0.1/32 scram-sha-256"]
# PostgreSQL lets everybody into these, to whom they are not there.
_TEMPLATES = "template0,template1"


def write_access(folder: Path, owner: User, superuser: str, without_password: Collection[str]) -> None:
    """Write both files anew; in ``without_password`` the word ``all`` stands for everybody."""
    lines, names = list(_PASSWORD), ""
    if without_password:
        users = ",".join(u if u == "all" else quote_always(u) for u in sorted(without_password))
        lines[:0] = [f"local all {superuser} scram-sha-256", f"local all {users} peer map=server"]
        names = f"server {quote_always(_own_name())} all\n"
    lines[:0] = [
        f"local {_TEMPLATES} {superuser} scram-sha-256", f"host {_TEMPLATES} {superuser} 127.0.0.1/32 scram-sha-256",
        f"local {_TEMPLATES} all reject", f"host {_TEMPLATES} all all reject",
    ]  # fmt: skip
    for name, text in (("pg_hba.conf", "\n".join(lines) + "\n"), ("pg_ident.conf", names)):
        file = folder / name
        file.write_text("# Written by pgstream at every start.\n" + text)
        file.chmod(0o600)
        owner.own(file)


def _own_name() -> str:
    """The name that PostgreSQL sees this process by."""
    try:
        return pwd.getpwuid(os.geteuid()).pw_name
    except KeyError:
        raise ConfigurationError(
            what=f"user id {os.geteuid()} has no name, and the access table lets users in by certificate",
            hint="Run pgstream as a user that has an entry in /etc/passwd.",
        ) from None
