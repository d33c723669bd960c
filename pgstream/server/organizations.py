"""Organizations: each a PostgreSQL cluster, a catalogue, keys and compute pools of its own, behind one port.

PostgreSQL shows the names of all databases and roles of a cluster, and the sessions in it, to everybody who is in; so
what is to be invisible lies in another cluster. ``DATA_DIR/organizations/ID`` is a data folder like the server's own;
its file ``name``, written last, makes it an organization. The server's own folder is the first one, ``default``.

Owns: which organizations there are, which of them a client asks for, making one, and opening and closing them all.
Must not know: statements, messages, how a session moves (``session``). Start reading at ``Organizations``.
"""

from __future__ import annotations

import asyncio
import contextlib
import shutil
import uuid
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

import structlog

from pgstream.catalog import kinds
from pgstream.catalog.records import FIRST_ORGANIZATION
from pgstream.config import Config
from pgstream.embedded.datadir import replace as write
from pgstream.errors import ConfigurationError, NotSupported
from pgstream.server.admission import Admissions
from pgstream.server.language import Language
from pgstream.server.reach import Address
from pgstream.wire.scram import Keys, Verifier

if TYPE_CHECKING:
    from pgstream.embedded.postgres import Postgres
    from pgstream.server.listener import Listener

SEPARATOR = "/"
"""Between an organization and a database, in the name that a client connects to."""
log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Place:
    """Where a client wants to go. ``listener`` None: into an organization that does not exist; ``prefix`` stands before
    the database's name where the access table is asked for it.
    """

    listener: Listener | None
    prefix: str
    database: str


@dataclass(frozen=True, slots=True)
class _Opened:
    listener: Listener
    postgres: Postgres
    stack: contextlib.AsyncExitStack = field(repr=False)


def folders(config: Config) -> Iterator[Path]:
    """The data folders of the organizations after the first."""
    for folder in sorted((config.data_dir / "organizations").glob("*/")):
        if (folder / "name").exists():
            yield folder


def inside(config: Config, folder: Path) -> Config:
    """The settings as they hold in an organization: what they name for the whole server is not each one's to use."""
    return replace(config, data_dir=folder, postgres_url="", attachments_dir=None, admin_password="")


class Organizations:
    """All of a server; the first one's listener is where the clients of all come in."""

    def __init__(self, first: Listener) -> None:
        self._first = first
        self._more: dict[str, _Opened] = {}
        self._making = asyncio.Lock()

    # Finding

    def __iter__(self) -> Iterator[Listener]:
        yield self._first
        yield from (o.listener for o in self._more.values())

    def find(self, name: str) -> Listener | None:
        return next((o for o in self if o.organization.name == name), None)

    def place(self, database: str, user: str) -> Place:
        """What a start-up packet asks for: ``organization/database``, or a database of the user's default organization.

        A name with a slash that begins with no organization may be that of a database in the first one.
        """
        name, slash, inner = database.partition(SEPARATOR)
        if slash and (named := self.find(name)) is not None:
            return Place(named, self.prefix(named), inner)
        if slash and database not in self._first.snapshot.databases:
            return Place(None, name + SEPARATOR, inner)
        found = self.default_of(user) if not slash else self._first
        return Place(found, self.prefix(found), database)

    def default_of(self, user: str) -> Listener:
        """Where a user goes who names no organization. A token of the first one belongs there."""
        if user in self._first.snapshot.access.tokens:
            return self._first
        kept = self._first.snapshot.kept(user).get("organization")
        return next((o for o in self if o.organization.id == kept), self._first)

    def prefix(self, listener: Listener) -> str:
        return "" if listener is self._first else listener.organization.name + SEPARATOR

    async def entered_by(self, user: str, keys: Keys | None) -> list[Listener]:
        """Those that a session's proof opens: the same name with another password is somebody else."""
        found = []
        for o in self:
            verifier = Verifier.parse((await o.admissions.ask(user, "postgres")).verifier or "")
            if keys is not None and verifier is not None and verifier.is_of(keys):
                found.append(o)
        return found

    # Making

    def check_several(self) -> None:
        """Whether there can be more than one. Errors: NotSupported."""
        if why := self._only_one:
            raise NotSupported(
                what=f"CREATE ORGANIZATION {why}",
                hint="Run another server, with a data folder of its own, for another organization.",
            )

    async def create(self, name: str, user: str, at: int | None = None) -> Listener:
        """An organization with its first user, who logs in as in the first one. Errors: DuplicateObject."""
        self.check_several()
        async with self._making:
            if self.find(name) is not None:
                raise kinds.duplicate("organization", name, at)
            verifier = (await self._first.admissions.ask(user, "postgres")).verifier
            folder = self._folder / str(uuid.uuid4())
            config = replace(inside(self._first.config, folder), admin_user=user, admin_password=verifier or "")
            try:
                opened = await self._open(config, name, new=True)
            except BaseException:
                await asyncio.to_thread(shutil.rmtree, folder, ignore_errors=True)
                raise
            write(folder / "name", name + "\n")
            self._more[name] = opened
            log.info("organization created", name=name, id=folder.name)
            return opened.listener

    @property
    def _only_one(self) -> str:
        config = self._first.config
        if config.postgres_url:
            return "with an external PostgreSQL"
        return "with several listener processes" if config.workers > 1 else ""

    @property
    def _folder(self) -> Path:
        return self._first.config.data_dir / "organizations"

    # Opening and closing

    async def open(self) -> None:
        """Open all; a folder that a crash left without a name goes. Errors: ConfigurationError."""
        known = list(folders(self._first.config))
        if known and self._only_one:
            raise ConfigurationError(
                what=f"the data folder holds several organizations, which are not supported {self._only_one}",
                hint=f'They lie in "{self._folder}". Start it with workers = 1 and its own PostgreSQL, or drop them: '
                "pgstream organizations --drop NAME.",
            )
        for left in set(self._folder.glob("*/")) - set(known):
            log.warning("repaired", what=f"left-over folder of an organization {left.name} removed")
            await asyncio.to_thread(shutil.rmtree, left)
        for folder in known:
            name = (folder / "name").read_text().rstrip("\n")
            self._more[name] = await self._open(inside(self._first.config, folder), name)

    async def _open(self, config: Config, name: str, new: bool = False) -> _Opened:
        from pgstream.catalog.store import Catalog
        from pgstream.embedded.postgres import open_postgres
        from pgstream.engine.engine import Engine

        async with contextlib.AsyncExitStack() as stack:
            first = self._first
            postgres = await open_postgres(config, without_password=first.access.without_password)
            stack.push_async_callback(postgres.stop)
            organization = replace(FIRST_ORGANIZATION, name=name, id=config.data_dir.name)
            catalog = await Catalog.open(config, postgres.url, config.data_dir, organization, first_user=new)
            stack.push_async_callback(catalog.close)
            engine = Engine(config, catalog)
            stack.push_async_callback(engine.stop)
            await engine.start(eager=False)
            listener = first.annex(config)
            listener.begin(
                catalog=catalog, engine=engine, address=Address(postgres.host, postgres.port),
                admissions=Admissions(catalog.control_url), language=Language.ours(),
            )  # fmt: skip
            stack.push_async_callback(listener.leave)
            return _Opened(listener, postgres, stack.pop_all())
        raise AssertionError

    def let_in(self) -> None:
        """The access table has changed. Errors: ConfigurationError."""
        for opened in self._more.values():
            opened.postgres.let_in(self._first.access.without_password)

    async def close(self) -> None:
        """May be called twice."""
        async with self._making:
            for name in list(self._more):
                await self._more.pop(name).stack.aclose()
