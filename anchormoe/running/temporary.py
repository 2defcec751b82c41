"""The temporary folder of a run, which a later run removes if this one is killed."""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from anchormoe.errors import UserError

_PREFIX = "anchormoe-run-"


@contextmanager
def temporary_folder() -> Iterator[str]:
    """Make a folder and remove it at the end, together with those of this user's runs that were killed before."""
    try:
        remove_abandoned_folders()
        folder, descriptor = _locked_folder()
    except OSError as error:
        raise UserError(
            f"a folder for temporary files is required, received: {error.strerror}; set TMPDIR to one that exists"
        ) from None
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)
        os.close(descriptor)


def _locked_folder() -> tuple[str, int]:
    """Make a folder and lock it as long as this process lives; workers, started anew, do not inherit the lock."""
    while True:
        folder = tempfile.mkdtemp(prefix=_PREFIX)
        descriptor = os.open(folder, os.O_RDONLY)
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        if os.path.isdir(folder):  # else another run took it for abandoned before it was locked
            return folder, descriptor
        os.close(descriptor)


def remove_abandoned_folders() -> None:
    """Remove the folders of this user's runs that were killed."""
    folders: list[Path] = []
    with contextlib.suppress(OSError):  # there is no place for temporary files
        folders += Path(tempfile.gettempdir()).glob(f"{_PREFIX}*")
    for folder in folders:
        with contextlib.suppress(OSError):  # it belongs to somebody else, or has just gone
            descriptor = os.open(folder, os.O_RDONLY | os.O_NOFOLLOW)
            try:
                if os.fstat(descriptor).st_uid != os.getuid():
                    continue
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                shutil.rmtree(folder, ignore_errors=True)
            finally:
                os.close(descriptor)
