"""Bringing the control database to the tables that this version expects, by Alembic.

Owns: the revision that ``models`` stand for, and the refusal of a catalogue written by a newer version.
Must not know: what the tables mean. Alembic is imported only when there is something to migrate: the usual start reads
one row and goes on. Add ``versions/vNNNN_word.py`` and move ``HEAD``. Start reading at ``migrate``.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import structlog
from sqlalchemy import inspect, text

from pgstream.errors import ConfigurationError

if TYPE_CHECKING:
    from alembic.runtime.migration import MigrationContext
    from alembic.script import ScriptDirectory
    from sqlalchemy import Connection

HEAD = "0009"
log = structlog.get_logger(__name__)


def revision(connection: Connection) -> str | None:
    """The revision of the control database; None when it is empty."""
    if not inspect(connection).has_table("alembic_version"):
        return None
    found: str | None = connection.execute(text("SELECT version_num FROM alembic_version")).scalar()
    return found


def scripts() -> ScriptDirectory:
    """The migrations shipped in this package."""
    from alembic.script import ScriptDirectory

    return ScriptDirectory(str(Path(__file__).parent))


def migrate(connection: Connection) -> None:
    """Bring the control database to ``HEAD`` in one transaction. Error: ConfigurationError for a newer catalogue."""
    found = revision(connection)
    if found == HEAD:
        return
    from alembic.config import Config
    from alembic.runtime.environment import EnvironmentContext

    directory = scripts()
    known = {s.revision for s in directory.walk_revisions()}
    if found is not None and found not in known:
        raise ConfigurationError(
            what=f"the catalogue has revision {found}, which is newer than this version of pgstream ({HEAD})",
            hint="Start the newer pgstream again, or restore a backup made before the upgrade.",
        )

    def steps(rev: tuple[str, ...], context: MigrationContext) -> list[object]:
        return directory._upgrade_revs(HEAD, rev)  # type: ignore[arg-type,return-value]

    with EnvironmentContext(Config(), directory, fn=steps) as environment:
        environment.configure(connection=connection)
        with environment.begin_transaction():
            environment.run_migrations()
    connection.commit()
    log.info("catalogue migrated", before=found, now=HEAD)
