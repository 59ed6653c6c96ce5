import pytest

# The helpers are a library: without this their asserts would fail without saying why.
pytest.register_assert_rewrite("tests.machines.support")
