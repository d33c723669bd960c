"""GENERATE TEMPLATE writes what CREATE reads: as it is, and with any of its comments made a parameter."""

from __future__ import annotations

import re

import pytest

from pgstream import statements, stores
from pgstream.catalog.records import Snapshot
from pgstream.sql.cursor import Cursor
from pgstream.statements.base import Session, Statement
from pgstream.statements.shapes import Create
from pgstream.statements.stores import CreateStore
from pgstream.statements.templates import _OF_STORES, _PLAIN, GenerateTemplate

KINDS = [" ".join(k) for k in _PLAIN]
OF_STORES = [f"{' '.join(k)} TYPE {t}" for k in _OF_STORES for t in stores.names()]


def template(of: str) -> str:
    return GenerateTemplate.parse(Cursor(f"GENERATE TEMPLATE FOR {of}")).text()


def read(text: str) -> Statement:
    kind = statements.recognize(text, Snapshot(), Session(user="admin", database="main"))
    assert kind is not None, text
    return statements.parse(text, kind)


@pytest.mark.parametrize("of", KINDS + OF_STORES)
def test_a_template_is_a_statement(of: str) -> None:
    text = template(of)
    made = read(text)
    if isinstance(made, Create) and not isinstance(made, CreateStore):
        made.options.check(made.given)
    if isinstance(made, CreateStore):
        type_ = stores.find(of.rsplit(maxsplit=1)[-1])
        type_.options.check({k: g for k, g in made.given.items() if k != "type"})
    for comment in re.findall(r"^    -- , .*$", text, re.M):
        read(text.replace(comment, comment.replace("-- ,", ",", 1)))


def test_every_create_of_the_shape_has_one() -> None:
    of_shape = {s.words[1:] for s in statements.STATEMENTS if issubclass(s, Create) and s.options.options}
    assert of_shape <= {*_PLAIN, *_OF_STORES}
