"""Shared fixtures. ``tests.datadriven`` reads the .test files; ``tests.server`` starts what they need."""

pytest_plugins = ["tests.datadriven", "tests.server", "tests.flows", "tests.postgres"]
