"""Results in an object store: S3 and what speaks its protocol, Google Cloud Storage, Azure, by the obstore library.

An object is written as a whole or not at all, and is durable when the store has answered; it cannot be extended. So
a file of rows is a folder of objects there (running/row_objects.py). Every other file is one object. Locks are written
on the condition that they have not changed, where the store knows conditions.
"""

from __future__ import annotations

import fnmatch
import re
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import timedelta
from functools import total_ordering
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Any

from anchormoe.errors import UserError

if TYPE_CHECKING:
    from anchormoe.running.row_objects import RowObjects

SCHEMES = ("s3", "s3a", "gs", "az", "abfs", "abfss")
PATIENCE_SECONDS = 60.0  # a store that cannot be reached for this long ends a run
_PARALLEL_READS = 16


@dataclass(frozen=True)
class Bucket:
    """The connections to the folder of a bucket that results_dir names."""

    url: str
    patient: Any = field(compare=False)  # retries for a while
    quick: Any = field(compare=False)  # for locks: a heartbeat that is late is of no use, and an end must not take long


def open_store(url: str) -> ObjectPlace:
    """Open the folder of a bucket; the first request is what shows whether it can be reached."""
    try:
        from obstore.exceptions import BaseError
        from obstore.store import from_url
    except ModuleNotFoundError as error:
        raise UserError(
            f"results_dir={url} needs the {error.name} package: pip install 'anchormoe[objectstore]'"
        ) from None

    def connect(seconds: float, retries: int) -> Any:
        retry = {
            "max_retries": retries,
            "retry_timeout": timedelta(seconds=seconds),
            "backoff": {"init_backoff": timedelta(seconds=0.2), "max_backoff": timedelta(seconds=10), "base": 2},
        }
        # Plain http is used only where an endpoint with http:// is named.
        client = {"allow_http": True, "connect_timeout": "5s", "timeout": "30s"}
        return from_url(url, client_options=client, retry_config=retry)  # type: ignore[call-overload]

    try:
        return ObjectPlace(Bucket(url.rstrip("/"), connect(PATIENCE_SECONDS, 100), connect(3.0, 2)))
    except (BaseError, ValueError) as error:
        raise UserError(f"results_dir must be the URL of a bucket, received {url}: {_one_line(error)}") from None


@total_ordering
@dataclass(frozen=True)
class ObjectPlace:
    """An object, or a folder of objects, below results_dir; `key` is its path there."""

    bucket: Bucket
    key: str = ""

    creates_exclusively = False  # not in every store

    def __str__(self) -> str:
        return f"{self.bucket.url}/{self.key}".rstrip("/")

    def __lt__(self, other: ObjectPlace) -> bool:
        return str(self) < str(other)

    def __truediv__(self, name: str) -> ObjectPlace:
        return self.at(str(PurePosixPath(self.key) / name))

    @property
    def name(self) -> str:
        return PurePosixPath(self.key).name

    @property
    def parent(self) -> ObjectPlace:
        return self.at(str(PurePosixPath(self.key).parent).removeprefix("."))

    def with_name(self, name: str) -> ObjectPlace:
        return self.at(str(PurePosixPath(self.key).with_name(name)))

    def with_suffix(self, suffix: str) -> ObjectPlace:
        return self.at(str(PurePosixPath(self.key).with_suffix(suffix)))

    def resolve(self) -> ObjectPlace:
        """Return this place: an object has no other names."""
        return self

    def at(self, key: str) -> ObjectPlace:
        """Return the object of a key, as listings give it."""
        return replace(self, key=key)

    def is_dir(self) -> bool:
        """Tell whether there is any object below this place."""
        import obstore

        with self._errors():
            return any(batch for batch in obstore.list(self.bucket.patient, self._prefix(), chunk_size=1))

    def sizes(self) -> dict[str, int]:
        """Return the keys of all objects below this place, sorted, with their bytes; this takes one listing."""
        import obstore

        with self._errors():
            found = obstore.list(self.bucket.patient, self._prefix()).collect()
        return {item["path"]: item["size"] for item in sorted(found, key=lambda item: item["path"])}

    def glob(self, pattern: str) -> list[ObjectPlace]:
        """Return the objects below this place whose relative path matches part by part."""
        wanted = pattern.split("/")
        start = len(PurePosixPath(self.key).parts)
        found = []
        for key in self.sizes():
            parts = PurePosixPath(key).parts[start:]
            if len(parts) == len(wanted) and all(map(fnmatch.fnmatchcase, parts, wanted)):
                found.append(self.at(key))
        return found

    def read_bytes(self) -> bytes:
        """Return the content of an object; raise FileNotFoundError if there is none."""
        import obstore

        with self._errors():
            return bytes(obstore.get(self.bucket.patient, self.key).bytes())

    def read_all(self, keys: Iterable[str]) -> dict[str, bytes]:
        """Return the contents of many objects, which are fetched side by side; those that are gone are left out."""

        def content(key: str) -> bytes | None:
            try:
                return self.at(key).read_bytes()
            except FileNotFoundError:
                return None

        keys = list(keys)
        with ThreadPoolExecutor(_PARALLEL_READS) as pool:
            contents = pool.map(content, keys)
            return {key: found for key, found in zip(keys, contents, strict=True) if found is not None}

    def put(self, content: bytes) -> None:
        """Write an object, as a whole or not at all; it is durable when this returns."""
        import obstore

        with self._errors():
            obstore.put(self.bucket.patient, self.key, content, use_multipart=False)

    def remove(self, keys: list[str]) -> None:
        """Remove objects; one that is gone already is no mistake."""
        import obstore

        with self._errors():
            obstore.delete(self.bucket.patient, keys)

    def stored_rows(self) -> RowObjects:
        """Return the rows of the objects at this place."""
        from anchormoe.running.row_objects import RowObjects

        return RowObjects(self)

    def experiments(self, names: Iterable[str] | None) -> list[tuple[str, RowObjects]]:
        """Return the rows of the named experiments (default: all): one listing, then all objects side by side."""
        from anchormoe.running.row_objects import experiments

        return experiments(self, names)

    def require_writable(self) -> None:
        """Leave the check to the lock: it is written before anything is computed."""

    # Also where the store knows conditions, an object is looked at before: some stores ignore them without a word.

    def create(self, content: bytes) -> object | None:
        """Create an object and return its version; None if there is one already."""
        return self._put_if("create", content) if self.version() is None else None

    def version(self) -> tuple[bytes, object] | None:
        """Return the content of an object and its version; None if there is no object."""
        import obstore

        try:
            with self._errors():
                found = obstore.get(self.bucket.quick, self.key)
                return bytes(found.bytes()), _version(found.meta)
        except FileNotFoundError:
            return None

    def replace_version(self, content: bytes, version: object) -> object | None:
        """Replace an object if it still has a version, and return the new one; None if it has changed or is gone."""
        found = self.version()
        return self._put_if(version, content) if found is not None and found[1] == version else None

    def remove_version(self, version: object) -> None:
        """Remove an object if it still has a version."""
        import obstore

        found = self.version()
        if found is not None and found[1] == version:
            with self._errors():
                obstore.delete(self.bucket.quick, self.key)

    def _put_if(self, mode: Any, content: bytes) -> object | None:
        """Write an object on the condition that it is new, or has a version; without one if the store knows none."""
        import obstore
        from obstore.exceptions import AlreadyExistsError, GenericError, NotSupportedError, PreconditionError

        with self._errors():
            try:
                return _version(obstore.put(self.bucket.quick, self.key, content, mode=mode, use_multipart=False))
            except (AlreadyExistsError, PreconditionError):
                return None
            except FileNotFoundError as error:
                if _NO_BUCKET.search(str(error)):
                    raise
                return None  # it was removed meanwhile
            except (NotImplementedError, NotSupportedError, GenericError) as error:
                if isinstance(error, GenericError) and "NotImplemented" not in str(error):
                    raise
            return _version(obstore.put(self.bucket.quick, self.key, content, use_multipart=False))

    def _prefix(self) -> str | None:
        return self.key or None

    @contextmanager
    def _errors(self) -> Iterator[None]:
        """Turn the errors of the library into one line; only FileNotFoundError of an object passes."""
        from obstore.exceptions import BaseError

        try:
            yield
        except FileNotFoundError as error:
            if not _NO_BUCKET.search(str(error)):
                raise
            raise self._unusable(error) from None
        except BaseError as error:
            raise self._unusable(error) from None

    def _unusable(self, error: Exception) -> UserError:
        return UserError(
            "results_dir must be a bucket that can be reached, read and written to, "
            f"received {self.bucket.url}: {reason(error)}; what was stored is safe, the same command goes on"
        )


_NO_BUCKET = re.compile("NoSuchBucket|bucket does not exist|ContainerNotFound")


def reason(error: Exception) -> str:
    """Say in a few words why a store refused a request or could not be reached."""
    text, kind = str(error), type(error).__name__
    if _NO_BUCKET.search(text):
        return "there is no such bucket"
    if re.search(r"latest/api/token|latest/meta-data|computeMetadata|metadata/identity|credential", text):
        return (
            "no credentials were found; set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, "
            "GOOGLE_APPLICATION_CREDENTIALS or AZURE_STORAGE_ACCOUNT_KEY"
        )
    code = re.search(r"<Code>(\w+)</Code>", text)
    if kind in ("UnauthenticatedError", "PermissionDeniedError") or re.search(r"status code: 40[13]", text):
        return f"permission denied{f' ({code[1]})' if code else ''}"
    if "error sending request" in text:
        return "no connection to the store"
    return _one_line(error)


def _one_line(error: Exception) -> str:
    first = str(error).split("\n\nDebug source")[0]
    return " ".join(first.split())[:300]


def _version(found: Any) -> dict[str, str]:
    """Return what the store calls the version of an object, as its conditional writes want it."""
    return {name: found[name] for name in ("e_tag", "version") if found.get(name)}
