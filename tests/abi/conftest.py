"""A folder to compile in, one a module."""

from __future__ import annotations

import pytest

from tests.abi.compiler import Workshop


@pytest.fixture(scope="module")
def workshop(tmp_path_factory: pytest.TempPathFactory) -> Workshop:
    return Workshop(tmp_path_factory.mktemp("abi"))
