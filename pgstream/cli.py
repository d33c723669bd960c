"""The ``pgstream`` command.

Owns: the commands, their flags (made from ``config.SETTINGS``) and help, exit codes, how an error reads.
Must not know: how anything is done; every command imports what it needs when it runs, so ``pgstream version`` is quick.
Start reading at ``COMMANDS``.
"""

from __future__ import annotations

import argparse
import logging
import os
import sys
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import pgstream
from pgstream.config import SETTINGS, Config, Setting, load
from pgstream.errors import PgStreamError

_SETTINGS_NOTE = (
    "Every flag is also an environment variable (--data-dir is PGSTREAM_DATA_DIR) and a line of the TOML file named by "
    "--config; a flag wins over the environment, the environment over the file. Secrets ({secrets}) have no flag, "
    "because everybody on a machine can read command lines: give them by environment or file."
)


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; the exit code."""
    args = _parser().parse_args(argv)
    command = COMMANDS[args.command]
    flags = {name: value for name, value in vars(args).items() if value is not None}
    try:
        config = load(flags)
        if command.settings is not None:
            from pgstream import logs

            logs.configure(config.log_level, config.log_format)
        return command.run(config, args)
    except PgStreamError as e:
        tell(e)
        return 1
    except KeyboardInterrupt:
        return 130


def tell(error: PgStreamError) -> None:
    """An error as a person at a terminal reads it."""
    print(f"error: {error.text}", file=sys.stderr)
    for label, words in (("detail", error.detail), ("hint", error.hint)):
        if words:
            print(f"{label}: {words}", file=sys.stderr)


def _serve(config: Config, _args: argparse.Namespace) -> int:
    import uvloop

    from pgstream.server.main import serve

    uvloop.run(serve(config))
    _end()
    return 0


def _end() -> None:
    """End the process at once where a thread hashes on for a PostgreSQL that wants it so (``bounded``): Python cannot
    end it, and it would go on with what the exit of OpenSSL has taken away.
    """
    from pgstream.stores.postgresql.bounded import THREAD

    if any(t.name == THREAD for t in threading.enumerate()):
        logging.shutdown()
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(0)


def _demo(config: Config, args: argparse.Namespace) -> int:
    from pgstream import demo

    return demo.main(config, args.seconds, args.stores)


def _check(config: Config, args: argparse.Namespace) -> int:
    from pgstream.embedded.check import check

    if args.repair:
        return _repair(config)

    findings = check(config)
    for finding in findings:
        print(f"{'ok' if finding.fault is None else 'FAILED':8}{finding.name:16}{finding.words}")
        if finding.fault is not None and finding.fault.hint:
            print(f"{'':24}{finding.fault.hint}")
    return 1 if any(finding.fault for finding in findings) else 0


def _repair(config: Config) -> int:
    from pgstream.server.stopped import repair

    for words in repair(config):
        print(f"repaired  {words}")
    print("ok        the catalogue and PostgreSQL agree")
    return 0


def _organizations(config: Config, args: argparse.Namespace) -> int:
    from pgstream.server import stopped

    if args.drop is not None:
        stopped.drop(config, args.drop, cascade=args.cascade)
        print(f'organization "{args.drop}" was dropped')
        return 0
    for name, folder in stopped.names(config).items():
        print(f"{name}  {folder}")
    return 0


def _jars(config: Config, args: argparse.Namespace) -> int:
    from pgstream.embedded import jars

    for part in ("connectors", *(p for p in ("broker", "msk") if getattr(args, p))):
        if args.list:
            for jar in jars.locked(part):
                print(f"{jar.sha256}  {jar.file}  {jar.coordinates}")
            continue
        paths = jars.fetch_part(part, config, lambda line: print(line, file=sys.stderr))
        print(f"{part}: {len(paths)} jars in {paths[0].parent}")
    if not args.list:
        from pgstream.server import native

        native.load(config)  # compiled where there is a compiler, which an image need not keep
    return _rehearse(config, args.broker) if args.warm else 0


def _rehearse(config: Config, broker: bool) -> int:
    import asyncio

    from pgstream.embedded import kafka
    from pgstream.engine.launch import rehearse

    if broker:
        asyncio.run(kafka.rehearse(config))
    return asyncio.run(rehearse(config))


def _broker(config: Config, args: argparse.Namespace) -> int:
    import asyncio

    from pgstream.embedded.kafka import serve_broker

    asyncio.run(serve_broker(config, args.port, lambda line: print(line, file=sys.stderr), _say))
    return 0


def _say(line: str) -> None:
    print(line, flush=True)


def _version(_config: Config, _args: argparse.Namespace) -> int:
    print(f"pgstream {pgstream.__version__}")
    return 0


@dataclass(frozen=True, slots=True)
class Command:
    """One command. ``settings``: which rows of ``SETTINGS`` are its flags; None: no settings at all."""

    run: Callable[[Config, argparse.Namespace], int]
    say: str
    examples: str
    settings: tuple[str, ...] | None


_ALL = tuple(s.name for s in SETTINGS)
_JARS = ("cache_dir", "jars_dir", "jars_mirror", "java_home", "log_level")

COMMANDS = {
    "serve": Command(
        _serve,
        "Run the server until SIGTERM or Ctrl-C. Prints one line, ready postgresql://USER@HOST:PORT/DATABASE, "
        "on standard output when clients can connect; logs go to standard error.",
        "pgstream serve\n"
        "PGSTREAM_ADMIN_PASSWORD=secret pgstream serve --data-dir /var/lib/pgstream --listen 0.0.0.0:5433 --tls auto\n"
        "PGSTREAM_POSTGRES_URL=postgresql://postgres:secret@db/postgres pgstream serve",
        _ALL,
    ),
    "demo": Command(
        _demo,
        "See page views flow from a Kafka topic into a materialized view. Starts all it needs; Ctrl-C stops it again.",
        "pgstream demo\npgstream demo --seconds 30\npgstream demo --stores all",
        ("data_dir", "listen", *_JARS),
    ),
    "check": Command(
        _check,
        "Say what would keep serve from starting. One line each; exit code 1 if anything would.",
        "pgstream check --data-dir /var/lib/pgstream\n"
        "pgstream check --repair     # after a crash: make PostgreSQL what the catalogue says, as a start would",
        _ALL,
    ),
    "organizations": Command(
        _organizations,
        "List the organizations after the server's first, or drop one, while the server is stopped. One that "
        "holds relations or stores is kept, unless --cascade is given.",
        "pgstream organizations --data-dir /var/lib/pgstream\n"
        "pgstream organizations --drop acme\n"
        "pgstream organizations --drop acme --cascade",
        ("data_dir", "log_level"),
    ),
    "jars": Command(
        _jars,
        "Download the jars now instead of at the first start, each checked by its SHA-256. With --warm also compile "
        "the operators and archive the classes, which makes every later start of a worker quicker.",
        "pgstream jars --broker --warm\n"
        "pgstream jars --jars-mirror https://mirror.example.com/maven2\n"
        "pgstream jars --list        # what to copy into the folder named by --jars-dir",
        _JARS,
    ),
    "broker": Command(
        _broker,
        "Run the embedded Kafka broker alone, for trying things out, until SIGTERM or Ctrl-C. Prints one line, "
        "ready kafka://HOST:PORT, on standard output when clients can connect. Its data is in DATA_DIR/kafka.",
        "pgstream broker\npgstream broker --port 9092",
        ("data_dir", *_JARS),
    ),
    "version": Command(_version, "Print the version.", "pgstream version", None),
}


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="pgstream",
        description="A streaming SQL database that any PostgreSQL client can talk to.",
        epilog='"pgstream COMMAND --help" has the flags and examples of a command.',
    )
    commands = parser.add_subparsers(dest="command", metavar="COMMAND", required=True)
    for name, command in COMMANDS.items():
        sub = commands.add_parser(
            name,
            help=command.say.split(". ")[0].rstrip(".") + ".",
            description=command.say,
            epilog=_epilog(command),
            formatter_class=_Formatter,
        )
        if command.settings is not None:
            sub.add_argument("--config", metavar="FILE", help="Settings in TOML, one line each: data_dir = '...'.")
            for setting in SETTINGS:
                if setting.name in command.settings and setting.kind != "secret":
                    _add(sub, setting)
        _add_own(sub, name)
    return parser


class _Formatter(argparse.RawDescriptionHelpFormatter):
    """Wraps the description, leaves the examples as they are."""

    def _fill_text(self, text: str, width: int, indent: str) -> str:
        parts = text.split("\n\n")
        return "\n\n".join(
            part if part.startswith("examples:") else argparse.HelpFormatter._fill_text(self, part, width, indent)
            for part in parts
        )


def _epilog(command: Command) -> str:
    examples = "examples:\n" + "\n".join("  " + line for line in command.examples.splitlines())
    if command.settings is None:
        return examples
    secrets = ", ".join(s.variable for s in SETTINGS if s.kind == "secret")
    return examples + "\n\n" + _SETTINGS_NOTE.format(secrets=secrets)


def _add(parser: argparse.ArgumentParser, setting: Setting) -> None:
    default = f" Default: {setting.default}." if setting.default not in ("", None) else ""
    say = (setting.say + default).replace("%", "%%")
    if setting.kind == "boolean":
        parser.add_argument(
            setting.flag, dest=setting.name, default=None, action=argparse.BooleanOptionalAction, help=say
        )
        return
    metavar = {"path": "PATH", "integer": "N"}.get(setting.kind, "TEXT")
    parser.add_argument(setting.flag, dest=setting.name, default=None, metavar=metavar, help=say)


def _add_own(parser: argparse.ArgumentParser, command: str) -> None:
    """The few flags that are no settings."""
    if command == "check":
        parser.add_argument(
            "--repair", action="store_true", help="Compare PostgreSQL with the catalogue and repair it."
        )
    if command == "organizations":
        parser.add_argument("--drop", metavar="NAME", help="Drop this organization, with its users, roles and keys.")
        parser.add_argument("--cascade", action="store_true", help="Drop its relations, queries and stores too.")
    if command == "demo":
        parser.add_argument("--seconds", type=float, metavar="N", help="End this long after the first live rows.")
        parser.add_argument(
            "--stores",
            choices=("kafka", "all"),
            default="kafka",
            help="all: a PostgreSQL and a double of Kinesis, too.",
        )
    if command == "jars":
        parser.add_argument("--broker", action="store_true", help="Also those of the embedded Kafka broker.")
        parser.add_argument("--warm", action="store_true", help="Also compile the operators and archive the classes.")
        parser.add_argument("--msk", action="store_true", help="Also the one that opens MSK by IAM.")
        parser.add_argument("--list", action="store_true", help="Print checksums, file names and coordinates instead.")
    if command == "broker":
        parser.add_argument("--port", type=int, default=0, metavar="N", help="0, the default, picks a free one.")
