"""What a worker is started with."""

from __future__ import annotations

import pytest

from pgstream.config import Config
from pgstream.engine.launch import master, sized
from pgstream.errors import ConfigurationError


@pytest.mark.parametrize("value", ["local", "local[*]", "local[4]", "spark://host:7077", "k8s://https://host:443"])
def test_masters(value: str) -> None:
    assert master(value) == value


@pytest.mark.parametrize("value", ["local[2,3]", "local[*, 4]"])
def test_tasks_are_not_tried_again_in_one_process(value: str) -> None:
    with pytest.raises(ValueError, match="local"):
        master(value)
    with pytest.raises(ConfigurationError, match="spark_master"):
        sized(Config(spark_master=value), {})
