"""The examples on the pages of docs/statements: the .test files of manual/, see tests/flows.py."""

from pathlib import Path

import pytest

from tests.datadriven import Case
from tests.flows import Flows, every
from tests.server import Kafka, Server


@pytest.mark.stream
@pytest.mark.parametrize("case", every(Path(__file__).parent / "manual"), ids=str)
def test_case(case: Case, flows: Flows, server: Server, kafka: Kafka) -> None:
    flows.run(case, server, kafka)
