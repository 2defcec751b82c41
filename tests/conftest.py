"""What all tests share."""

import pytest

from anchormoe.arithmetic import use_portable_arithmetic

use_portable_arithmetic()  # before NumPy is loaded: golden numbers are the same on all machines

# Whole programs, killed and started again, take longest: begun first, they do not keep one worker busy at the end.
_LONGEST = ("test_kill_9", "test_ngboost_of_the_paper", "test_runs.py", "test_ranking.py")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Run the longest tests first."""
    items.sort(key=lambda item: next((k for k, name in enumerate(_LONGEST) if name in item.nodeid), len(_LONGEST)))
