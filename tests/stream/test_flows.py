"""The .test files of flows/: see tests/flows.py."""

from pathlib import Path

import pytest

from tests.datadriven import Case
from tests.flows import Flows, every
from tests.server import Kafka, Server


@pytest.mark.stream
@pytest.mark.parametrize("case", every(Path(__file__).parent / "flows"), ids=str)
def test_case(case: Case, flows: Flows, server: Server, kafka: Kafka) -> None:
    flows.run(case, server, kafka)
