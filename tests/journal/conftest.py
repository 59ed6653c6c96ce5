import pytest

# The conformance suite is a library: without this its asserts would fail without saying why.
pytest.register_assert_rewrite("holdfast.testing")
