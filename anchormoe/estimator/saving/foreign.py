"""Regressors of scikit-learn and of the user, by skops: types that it does not trust are refused unless named.

skops judges types, not numbers. scikit-learn's trees, which it does not trust for that reason, are loaded without being
named and then checked here.
"""

from __future__ import annotations

import io
import zipfile
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from anchormoe.estimator.saving.archive import honest_archive
from anchormoe.estimator.saving.errors import refused, require
from anchormoe.estimator.saving.trees import require_children, require_features

CHECKED_TYPES = frozenset({"sklearn.tree._tree.Tree"})  # trusted because their content is checked
MOST_SPARSE_BYTES = 2**28  # of a sparse matrix, the only content that skops compresses


def is_its(value: Any) -> bool:
    """Tell whether a value is a regressor or a part of one, or a class of them."""
    return isinstance(value, type) or hasattr(value, "fit")


def to_bytes(value: Any, path: str) -> bytes:
    """Return a regressor in skops' format."""
    import skops.io

    try:
        return skops.io.dumps(value)
    except Exception as error:  # skops runs the regressor's own code
        raise ValueError(f"{path} must be something that skops can save, received {type(value)}: {error}") from error


def from_bytes(content: bytes, trusted: Sequence[str]) -> Any:
    """Load a regressor, as long as all its types are trusted."""
    import skops.io

    with honest_archive(content) as archive:
        for entry in archive.infolist():
            if entry.filename.endswith(".npz"):
                _require_small(archive.read(entry))
    found = set(skops.io.get_untrusted_types(data=content))
    unknown = sorted(found - CHECKED_TYPES - set(trusted))
    if unknown:
        advice = f"if you trust the file and these types, load it with trusted={unknown}"
        raise refused("types that are known to be safe", ", ".join(unknown), advice)
    loaded = skops.io.loads(content, trusted=sorted(found))
    for part in _parts(loaded):
        _require_sound(part)
    return loaded


def _require_small(sparse: bytes) -> None:
    with zipfile.ZipFile(io.BytesIO(sparse)) as archive:
        size = sum(entry.file_size for entry in archive.infolist())
    require(size <= MOST_SPARSE_BYTES, f"sparse matrices of at most {MOST_SPARSE_BYTES} bytes", size)


def _parts(whole: Any) -> Iterator[Any]:
    """Yield an object and all that it consists of."""
    seen: dict[int, Any] = {}
    waiting = [whole]
    while waiting:
        part = waiting.pop()
        if id(part) in seen or isinstance(part, type):
            continue
        seen[id(part)] = part
        yield part
        if isinstance(part, dict):
            waiting += [*part.keys(), *part.values()]
        elif isinstance(part, list | tuple | set | frozenset):
            waiting += list(part)
        elif isinstance(part, np.ndarray):
            waiting += list(part.flat) if part.dtype == object else []
        elif hasattr(part, "__dict__"):
            waiting += list(vars(part).values())


def _require_sound(part: Any) -> None:
    """Check what compiled code of NumPy and scikit-learn takes on trust."""
    from sklearn.ensemble import BaggingClassifier, BaggingRegressor, BaseEnsemble, IsolationForest
    from sklearn.tree import BaseDecisionTree
    from sklearn.tree._tree import Tree

    if isinstance(part, np.random.RandomState):
        position = part.get_state(legacy=False)["state"]["pos"]
        require(0 <= position <= 624, "a random state with a position from 0 to 624", position)
    elif isinstance(part, Tree):
        require(part.node_count == part.capacity, f"a tree of {part.capacity} nodes", part.node_count)
        require_children([part.children_left], [part.children_right])
        require_features(part.feature[part.children_left >= 0], part.n_features)
    elif isinstance(part, BaseDecisionTree):
        columns, tree = getattr(part, "n_features_in_", None), getattr(part, "tree_", None)
        require(tree is None or tree.n_features == columns, f"a tree of {columns} features", tree)
    elif isinstance(part, BaseEnsemble) and not isinstance(
        part, BaggingRegressor | BaggingClassifier | IsolationForest
    ):
        columns = getattr(part, "n_features_in_", None)
        for tree in np.ravel(getattr(part, "estimators_", [])):
            same = getattr(tree, "n_features_in_", None) == columns
            require(same, f"estimators of {columns} features", "estimators of others")
