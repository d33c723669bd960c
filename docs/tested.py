"""docs/statements/coverage.md: every statement name of the language, and what is known of it from code and tests.

Owns: the list of names, and reading the tests. A tick is evidence: *parsed* a class of ``statements.STATEMENTS``,
*executed* a test that runs the statement against a server, *error* one that expects it to fail, *privilege* one under
``tests/pg/access``. Tests are read, not run: ``.test`` files by their directives; Python files by their string
constants, which count as errors inside ``pytest.raises``, in a call to ``fault``, and among the parameters of a test
that has either. Must not know: grammar. Start reading at ``page``.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

from pgstream import statements
from tests.datadriven import cases

ROOT = Path(__file__).resolve().parent.parent

# Name, and where its name alone does not find it in a text: a pattern.
NAMES: tuple[tuple[str, str], ...] = tuple(
    (name.strip(), pattern.strip())
    for name, pattern in (
        (line + ";").split(";")[:2]
        for line in r"""
ACCEPT INVITATION
ALTER API_TOKEN
ALTER … OWNER TO; ALTER\s+.*\bOWNER\s+TO\b
ALTER POLICY
ALTER QUERY … TAG; ALTER\s+QUERY\s.*\bTAG\b
ALTER … ROW LEVEL SECURITY; ALTER\s+.*\bROW\s+LEVEL\s+SECURITY\b
ALTER RELATION … SET description; ALTER\s+\S.*\bSET\s+description\b
ALTER SECURITY INTEGRATION
ALTER USER … PASSWORD; ALTER\s+(USER|ROLE)\s+.*\bPASSWORD\b
BEGIN APPLICATION
CAN I
CHECK MATERIALIZED VIEW
COPY DESCRIPTOR_SOURCE
COPY FUNCTION_SOURCE
CREATE API_TOKEN
CREATE CHANGELOG; CREATE\s+CHANGELOG\s(?!.*\)?\s+AS\s+SELECT)
CREATE CHANGELOG AS SELECT; CREATE\s+CHANGELOG\s.*\bAS\s+(SELECT|WITH)
CREATE COMPUTE_POOL
CREATE DATABASE
CREATE DESCRIPTOR_SOURCE
CREATE ENTITY; CREATE\s+(ENTITY|TOPIC)\b
CREATE FUNCTION; CREATE\s+FUNCTION\s.*\bWITH\s*\(
CREATE FUNCTION_SOURCE
CREATE INDEX
CREATE MATERIALIZED VIEW AS SELECT; CREATE\s+MATERIALIZED\s+VIEW
CREATE METRICS INTEGRATION
CREATE OR REPLACE MATERIALIZED VIEW
CREATE POLICY
CREATE ORGANIZATION
CREATE ROLE
CREATE SCHEMA
CREATE SCHEMA_REGISTRY
CREATE SECRET
CREATE SECURITY INTEGRATION
CREATE STORE
CREATE STREAM; CREATE\s+STREAM\s(?!.*\)?\s+AS\s+SELECT)
CREATE STREAM AS SELECT; CREATE\s+STREAM\s.*\bAS\s+(SELECT|WITH)
CREATE TABLE; CREATE\s+TABLE\s.*\bWITH\s*\(\s*'
CREATE TABLE AS SELECT; CREATE\s+TABLE\s.*\bWITH\s*\(\s*'.*\bAS\s+SELECT
CREATE VIRTUAL CHANGELOG
CREATE VIRTUAL STREAM
DESCRIBE <statement>; DESCRIBE\s+(CREATE|INSERT|SELECT|WITH)\b
DESCRIBE ENTITY; DESCRIBE\s+(ENTITY|TOPIC)\b
DESCRIBE QUERY; DESCRIBE\s+QUERY\s+(?!(STATE|METRICS|EVENTS)\s)
DESCRIBE QUERY EVENTS
DESCRIBE QUERY METRICS
DESCRIBE QUERY STATE
DESCRIBE RELATION; DESCRIBE\s+RELATION\s+(?!COLUMNS)
DESCRIBE RELATION COLUMNS
DESCRIBE ROLE
DESCRIBE SANDBOX
DESCRIBE SECURITY INTEGRATION
DESCRIBE STORE
DESCRIBE USER
DROP API_TOKEN
DROP CHANGELOG
DROP COMPUTE_POOL
DROP DATABASE
DROP DESCRIPTOR_SOURCE
DROP ENTITY; DROP\s+(ENTITY|TOPIC)\b
DROP FUNCTION
DROP FUNCTION_SOURCE
DROP INDEX
DROP MATERIALIZED VIEW
DROP METRICS INTEGRATION
DROP POLICY
DROP RELATION
DROP ROLE
DROP SCHEMA
DROP SCHEMA_REGISTRY
DROP SECRET
DROP SECURITY INTEGRATION
DROP STORE
DROP STREAM
DROP TABLE
DROP USER
GENERATE COLUMNS
GENERATE STREAM DDL
GENERATE TEMPLATE
GRANT OWNERSHIP
GRANT PRIVILEGES; GRANT\s+(?!OWNERSHIP\b|ROLE\b).*\bON\b.*\bTO\b
GRANT ROLE
INSERT INTO … SELECT; INSERT\s+INTO\s+(?!ENTITY\b|TOPIC\b).*\bSELECT\b
INSERT INTO ENTITY … VALUE; INSERT\s+INTO\s+(ENTITY|TOPIC)\b
INVITE USER
LIST API_TOKENS
LIST CHANGELOGS
LIST COMPUTE_POOLS
LIST DATABASES
LIST DESCRIPTORS
LIST DESCRIPTOR_SOURCES
LIST ENTITIES; (LIST|SHOW)\s+(ENTITIES|TOPICS)\b
LIST FUNCTIONS
LIST FUNCTION_SOURCES
LIST INDEXES
LIST MATERIALIZED VIEWS
LIST METRICS INTEGRATIONS
LIST MY INVITATIONS
LIST ORGANIZATIONS
LIST PENDING INVITATIONS
LIST POLICIES
LIST QUERIES
LIST REGIONS
LIST RELATIONS
LIST ROLES
LIST SCHEMAS
LIST SCHEMA_REGISTRIES
LIST SECRETS
LIST SECURITY INTEGRATIONS
LIST STORES
LIST STREAMS
LIST TABLES
LIST USER ROLES
LIST USERS
PRINT ENTITY; PRINT\s+(ENTITY|TOPIC)\b
REINDEX
REJECT INVITATION
REPAIR MATERIALIZED VIEW
RESTART QUERY
Resume query (QUERY WITH); .*\bresume\.from\.query\.
REVOKE INVITATION
REVOKE PRIVILEGES; REVOKE\s+(?!INVITATION\b|ROLE\b).*\bFROM\b
REVOKE ROLE
SELECT (streaming); ((SELECT|WITH)\b.*\bFROM\b)
SELECT from deltastream.sys; SELECT\b.*\bdeltastream\.sys\b
SET DEFAULT
START COMPUTE_POOL
START SANDBOX
STOP COMPUTE_POOL
STOP SANDBOX
TERMINATE QUERY
TRUNCATE RELATION
UPDATE COMPUTE_POOL
UPDATE ENTITY; UPDATE\s+(ENTITY|TOPIC)\b
UPDATE SCHEMA_REGISTRY
UPDATE SECRET
UPDATE STORE
USE COMPUTE_POOL
USE DATABASE
USE ORGANIZATION
USE ROLE
USE SCHEMA
USE STORE
""".strip().split("\n")
    )
)
POSTGRESQL = "PostgreSQL"
"""Instead of a class: PostgreSQL has the grammar."""
# Names whose class is found under other words.
_CLASS = {
    "ALTER … OWNER TO": "AlterOwner", "ALTER … ROW LEVEL SECURITY": "AlterRowSecurity",
    "ALTER USER … PASSWORD": "AlterUser", "ALTER RELATION … SET description": "AlterRelation",
    "DESCRIBE <statement>": "DescribeStatement", "GRANT PRIVILEGES": "GrantPrivileges",
    "REVOKE PRIVILEGES": "RevokePrivileges", "INSERT INTO … SELECT": "InsertInto",
    "INSERT INTO ENTITY … VALUE": "InsertIntoEntity", "SELECT (streaming)": "SelectStream",
    "SELECT from deltastream.sys": POSTGRESQL, "Resume query (QUERY WITH)": "InsertInto",
    "ALTER QUERY … TAG": "AlterQuery",
    "CREATE CHANGELOG AS SELECT": "CreateChangelogAs", "CREATE STREAM AS SELECT": "CreateStreamAs",
    "CREATE OR REPLACE MATERIALIZED VIEW": "ReplaceMaterializedViewAs",
    "CREATE MATERIALIZED VIEW AS SELECT": "CreateMaterializedViewAs", "CREATE CHANGELOG": "CreateChangelog",
    "CREATE STREAM": "CreateStream", "CREATE TABLE": "CreateTable", "CREATE TABLE AS SELECT": "CreateTableAs",
}  # fmt: skip
_EXECUTED = frozenset(("statement", "query", "user", "as"))
_FAILS = frozenset(("raises", "fault", "refused", "denied"))
_APPLICATION = re.compile(r"\s*BEGIN\s+APPLICATION\s+\w+\s", re.I)
Seen = tuple[str, str]
"""What a test does with a text (``executed``, ``error``, ``privilege``), and the text."""


def _in_flows(folder: Path) -> Iterator[Seen]:
    for path in sorted(folder.rglob("*.test")):
        for case in cases(path):
            wrong = case.directive == "error" or re.match(r"\w{5}( at \d+)?: ", case.expected)
            yield from (("error" if wrong else "executed", text) for text in (case.input, *_within(case.input)))


def _within(text: str) -> Iterator[str]:
    """The statements of an application."""
    found = _APPLICATION.match(text)
    if found is not None:
        yield from text[found.end() :].split(";")


def _texts(node: ast.AST) -> Iterator[str]:
    for n in ast.walk(node):
        if isinstance(n, ast.Constant) and isinstance(n.value, (str, bytes)):
            text = n.value.decode(errors="replace") if isinstance(n.value, bytes) else n.value
            yield from text.split(";")
            yield from _within(text)
        elif isinstance(n, ast.JoinedStr):
            yield "".join(str(v.value) if isinstance(v, ast.Constant) else "x" for v in n.values)


def _expects_failure(node: ast.AST) -> bool:
    named = (getattr(n.func, "attr", getattr(n.func, "id", "")) for n in ast.walk(node) if isinstance(n, ast.Call))
    return any(name in _FAILS for name in named)


def _in_python(path: Path) -> Iterator[Seen]:
    for f in ast.walk(ast.parse(path.read_text())):
        if not isinstance(f, (ast.FunctionDef, ast.AsyncFunctionDef)):
            continue
        what = "error" if any(_expects_failure(s) for s in f.body) else "executed"
        yield from ((what, t) for d in f.decorator_list for t in _texts(d))
        for n in ast.walk(f):
            failing = (isinstance(n, (ast.With, ast.AsyncWith)) and any(_expects_failure(i) for i in n.items)) or (
                isinstance(n, ast.Call) and getattr(n.func, "id", "") in _FAILS
            )
            if failing:
                yield from (("error", t) for t in _texts(n))
            elif isinstance(n, ast.Call) and not _expects_failure(n):
                yield from (("executed", t) for t in _texts(n))


@cache
def seen() -> dict[str, frozenset[str]]:
    """Texts by what tests do with them; only tests that have a server."""
    tests = ROOT / "tests"
    found: set[Seen] = set()
    for folder in ("pg", "stream", "clients"):
        found.update(_in_flows(tests / folder))
        for path in sorted((tests / folder).rglob("test_*.py")):
            found.update(_in_python(path))
    access = tests / "pg" / "access"
    found.update(("privilege", t) for path in access.rglob("*.py") for t in _texts(ast.parse(path.read_text())))
    found.update(("privilege", t) for _, t in _in_flows(access))
    return {what: frozenset(t.strip() for w, t in found if w == what) for what in ("executed", "error", "privilege")}


def _class(name: str) -> str | None:
    by_name = {s.__name__: s for s in statements.STATEMENTS}
    if name in _CLASS:
        return _CLASS[name] if _CLASS[name] in by_name or _CLASS[name] == POSTGRESQL else None
    return next((s.__name__ for s in statements.STATEMENTS if " ".join(s.words) == name), None)


def _pattern(name: str, pattern: str) -> re.Pattern[str]:
    first, _, rest = name.partition(" ")
    if not pattern:
        words = [r"(?:LIST|SHOW)" if first == "LIST" else first, *(re.escape(w) for w in rest.split())]
        pattern = r"\s+".join(words) + r"\b"
    return re.compile(pattern, re.I | re.S)


def page() -> str:
    """The table."""
    out = [
        "# Coverage\n\n<!-- Made by docs/generate.py from the statements and the tests; do not edit. -->\n\n",
        "Every statement name of the language. *Parsed*: a class has its grammar. *Executed*, *error*: a test with a\n"
        "server runs it, or expects its refusal. *Privilege*: a test of `tests/pg/access` asks who may. A tick is\n"
        "found by reading the tests (`docs/tested.py`).\n\n",
        "| statement | parsed | executed | privilege | error |\n|---|---|---|---|---|\n",
    ]
    for name, pattern in NAMES:
        known = _class(name)
        found = _pattern(name, pattern)
        ticks = ["✓" if known else ""]
        for what in ("executed", "privilege", "error"):
            ticks.append("✓" if known and any(found.match(t) for t in seen()[what]) else "")
        shown = name.replace("<", "&lt;")
        out.append(f"| {shown} | {' | '.join(ticks)} |\n")
    return "".join(out)
