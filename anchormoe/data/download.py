"""Fetch a dataset's file from a mirror or its public home into the cache.

The body goes to a temporary file in the cache folder and is moved into place only after its size and content were
verified, so a file in the cache is complete or absent.
"""

from __future__ import annotations

import os
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import unquote, urlsplit

import numpy as np
from rich.console import Console
from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TransferSpeedColumn

from anchormoe.data.catalogue import DatasetInfo
from anchormoe.data.containers import MAX_BYTES, ContainerError
from anchormoe.data.formats import is_original, verified_table
from anchormoe.errors import UserError

if TYPE_CHECKING:
    import requests

CACHE_VARIABLE = "ANCHORMOE_DATA"
_CHUNK_BYTES = 64 * 1024


@dataclass(frozen=True, kw_only=True)
class Policy:
    """The attempts and timeouts of a download. Only failures that may pass by themselves are tried again."""

    attempts: int = 3  # per address
    backoff_seconds: float = 1.0  # doubles after each failed attempt
    timeout_seconds: float = 30.0  # for a connection, and between two bytes
    deadline_seconds: float = 600.0  # for a whole attempt: a server may send a byte now and then for ever


@dataclass(frozen=True, eq=False)
class Fetched:
    path: Path
    table: np.ndarray
    address: str  # where the file came from; its own path if it was cached already
    is_original: bool  # byte for byte the original file, not only the same values


class _Failed(Exception):
    """Raised when an address did not deliver the file; the message is a short reason."""


class _MayPass(_Failed):
    """Raised for a failure that is worth another attempt at the same address."""


def cache_folder(cache_dir: Path | None = None) -> Path:
    """Return the given folder, else $ANCHORMOE_DATA, else .cache/anchormoe in the home folder."""
    if cache_dir is not None:
        return Path(cache_dir)
    named = os.environ.get(CACHE_VARIABLE)
    return Path(named).expanduser() if named else Path.home() / ".cache" / "anchormoe"


def cached_path(dataset: DatasetInfo, cache_dir: Path | None = None) -> Path | None:
    """Return the newest cached file of a dataset, unverified, or None."""
    found = cache_folder(cache_dir).glob(f"{dataset.name}.*")
    return max(found, key=lambda path: path.stat().st_mtime_ns, default=None)


def fetch(
    dataset: DatasetInfo,
    *,
    mirror: str | None = None,
    cache_dir: Path | None = None,
    policy: Policy | None = None,
    console: Console | None = None,
) -> Fetched:
    """Return the dataset's verified file and table, from the cache or from the first address that delivers it."""
    policy = policy or Policy()
    console = console or Console(stderr=True)
    addresses = ([_mirror_address(mirror, dataset)] if mirror else []) + dataset.urls
    folder = cache_folder(cache_dir)
    with cache_errors(folder):
        folder.mkdir(parents=True, exist_ok=True)
        cached = _from_cache(dataset, folder, console)
    if cached:
        return cached
    failures = []
    for address in addresses:
        try:
            return _fetch_one(dataset, address, folder, policy, console)
        except _Failed as failure:
            failures.append(f"{address}: {failure}")
    raise UserError(
        f"cannot get dataset {dataset.name!r}: expected its table of {dataset.rows} rows x {len(dataset.columns)} "
        f"columns, found none that fits: {' | '.join(failures)}; check the network, name a folder or URL that has "
        f"{dataset.file_name} with data.mirror=..., or use data.source=embedded"
    )


def _from_cache(dataset: DatasetInfo, folder: Path, console: Console) -> Fetched | None:
    path = cached_path(dataset, folder)
    if path is None:
        return None
    try:
        data = path.read_bytes()
        return Fetched(path, verified_table(data, dataset), str(path), is_original(data, dataset))
    except ContainerError as error:
        # It stays until a good file replaces it: it may belong to somebody, and the network may be down.
        console.print(f"cached file {path} is damaged ({error}); fetching it again", soft_wrap=True, markup=False)
        return None


def _fetch_one(dataset: DatasetInfo, address: str, folder: Path, policy: Policy, console: Console) -> Fetched:
    """Fetch the file of one address into the cache, or raise _Failed and leave nothing behind."""
    with cache_errors(folder):
        descriptor, temporary_name = tempfile.mkstemp(prefix=f".{dataset.name}-", suffix=".part", dir=folder)
        os.close(descriptor)
    temporary = Path(temporary_name)
    try:
        if _is_url(address):
            _with_retries(lambda: _download_in_time(address, temporary, policy, console), policy)
        else:
            _copy(Path(address), temporary)
        data = temporary.read_bytes()
        try:
            table = verified_table(data, dataset)
        except ContainerError as error:
            raise _Failed(str(error)) from error
        suffix = Path(unquote(urlsplit(address).path)).suffix.lower() or ".data"
        final = folder / f"{dataset.name}{suffix}"
        with cache_errors(folder):
            temporary.chmod(0o644)  # mkstemp makes it private; a cache may be shared
            os.replace(temporary, final)
        return Fetched(final, table, address, is_original(data, dataset))
    finally:
        temporary.unlink(missing_ok=True)


def _with_retries(attempt: Callable[[], None], policy: Policy) -> None:
    for number in range(1, policy.attempts + 1):
        try:
            return attempt()
        except _MayPass as failure:
            if number == policy.attempts:
                raise _Failed(f"{failure} ({number} attempts)") from failure
            time.sleep(policy.backoff_seconds * 2 ** (number - 1))


def _download_in_time(url: str, target: Path, policy: Policy, console: Console) -> None:
    """Download in a thread, which is left alone when the deadline has passed: no library limits the whole time."""
    given_up = threading.Event()
    failures: list[BaseException] = []

    def work() -> None:
        try:
            _download(url, target, policy, console, given_up)
        except BaseException as error:
            failures.append(error)

    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    try:
        thread.join(policy.deadline_seconds)
    finally:
        given_up.set()
    if thread.is_alive():
        raise _Failed(f"not finished within {policy.deadline_seconds:g} s")
    if failures:
        raise failures[0]


def _download(url: str, target: Path, policy: Policy, console: Console, given_up: threading.Event) -> None:
    import requests  # slow to import, and only a download needs it

    try:
        # Without compression in transit Content-Length is the size of the file.
        headers = {"Accept-Encoding": "identity"}
        with requests.get(url, stream=True, timeout=policy.timeout_seconds, headers=headers) as response:
            if response.status_code != 200:
                kind = _MayPass if response.status_code >= 500 or response.status_code == 429 else _Failed
                raise kind(f"HTTP {response.status_code} {response.reason}".strip())
            _save(response, target, console, given_up)
    except requests.exceptions.SSLError as error:
        raise _Failed("the server's certificate was not accepted") from error
    except requests.Timeout as error:
        raise _MayPass(f"no answer within {policy.timeout_seconds:g} s") from error
    except requests.ConnectionError as error:
        # While a body is read, requests reports a read timeout as a ConnectionError.
        timed_out = "timed out" in str(error)
        raise _MayPass(f"no answer within {policy.timeout_seconds:g} s" if timed_out else "no connection") from error
    except (requests.RequestException, ValueError) as error:  # ValueError: an address that cannot be parsed
        raise _Failed(f"request failed ({type(error).__name__})") from error


def _save(response: requests.Response, target: Path, console: Console, given_up: threading.Event) -> None:
    from requests.exceptions import ChunkedEncodingError

    length = response.headers.get("Content-Length", "")
    is_encoded = response.headers.get("Content-Encoding", "identity") != "identity"
    if given_up.is_set():
        return
    is_number = length.isascii() and length.isdigit() and len(length) <= 15  # a longer one says nothing
    expected = int(length) if is_number and not is_encoded else None
    received = 0
    columns = (TextColumn("{task.description}"), BarColumn(), DownloadColumn(), TransferSpeedColumn())
    progress = Progress(*columns, console=console, transient=True, disable=not console.is_terminal)
    with progress, _opened(target) as write:
        task = progress.add_task(urlsplit(response.url).netloc, total=expected)
        try:
            for chunk in response.iter_content(_CHUNK_BYTES):
                received += len(chunk)
                if given_up.is_set():
                    return
                if received > MAX_BYTES:
                    raise _Failed(f"refused: larger than {MAX_BYTES // 2**20} MiB")
                write(chunk)
                progress.update(task, completed=received)
        except ChunkedEncodingError as error:  # the connection closed too early
            raise _MayPass(f"truncated: expected {length or 'more'} bytes, found {response.raw.tell()}") from error
    if expected is not None and received != expected:
        raise _MayPass(f"truncated: expected {expected} bytes, found {received}")


@contextmanager
def _opened(target: Path) -> Iterator[Callable[[bytes], None]]:
    """Yield a write function whose errors name the cache folder (requests' own errors are OSErrors too)."""
    with cache_errors(target.parent):
        file = target.open("wb")

    def write(chunk: bytes) -> None:
        with cache_errors(target.parent):
            file.write(chunk)

    try:
        yield write
    finally:
        with cache_errors(target.parent):
            file.close()


def _copy(path: Path, target: Path) -> None:
    try:
        data = path.read_bytes()
    except OSError as error:
        raise _Failed(error.strerror or type(error).__name__) from error
    with cache_errors(target.parent):
        target.write_bytes(data)


def _mirror_address(mirror: str, dataset: DatasetInfo) -> str:
    if _is_url(mirror):
        return f"{mirror.rstrip('/')}/{dataset.file_name}"
    folder = Path(mirror).expanduser()
    if not folder.is_dir():
        raise UserError(f"data.mirror must be an existing folder or an http(s) URL, received {mirror!r}; correct it")
    # A folder may also hold the archive's own file name, or this project's embedded form.
    names = (dataset.file_name, dataset.archive_member, f"{dataset.name}.csv.xz", f"{dataset.name}.zip")
    return str(next((folder / name for name in names if (folder / name).is_file()), folder / dataset.file_name))


def _is_url(address: str) -> bool:
    return address.lower().startswith(("http://", "https://"))


@contextmanager
def cache_errors(folder: Path) -> Iterator[None]:
    """Turn what the system says about the cache folder into one line that names it."""
    try:
        yield
    except OSError as error:
        raise UserError(
            f"cache folder must be a writable folder, received {folder} ({error.strerror or error}); "
            f"name another one with the environment variable {CACHE_VARIABLE}"
        ) from error
