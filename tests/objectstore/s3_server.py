"""A small server that speaks S3's protocol on a loopback address, with a process of its own, for tests.

    python tests/objectstore/s3_server.py FOLDER PORT [--page 1000] [--ignore-conditions]

Objects are files of FOLDER, so that a server which was killed can be started again. The access key decides what is
allowed: `denied` nothing, `reader` no writing, `unknown` is not known.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import re
import threading
import uuid
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import parse_qs, quote, unquote, urlsplit
from xml.sax.saxutils import escape

LOCK = threading.Lock()


class Objects:
    """The objects of all buckets, as files; a bucket is a folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def path(self, bucket: str, key: str) -> Path:
        return self.folder / bucket / quote(key, safe="")

    def get(self, bucket: str, key: str) -> bytes | None:
        try:
            return self.path(bucket, key).read_bytes()
        except FileNotFoundError:
            return None

    def put(self, bucket: str, key: str, content: bytes) -> None:
        unfinished = self.folder / f"{uuid.uuid4().hex}.unfinished"
        unfinished.write_bytes(content)
        os.replace(unfinished, self.path(bucket, key))

    def keys(self, bucket: str) -> list[str]:
        return sorted(unquote(path.name) for path in (self.folder / bucket).iterdir())


class Handler(BaseHTTPRequestHandler):
    """Answers the requests that the harness makes: put, get, delete, list."""

    protocol_version = "HTTP/1.1"
    objects: Objects
    page_size: int
    ignores_conditions: bool

    def handle_request(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        url = urlsplit(self.path)
        bucket, _, key = unquote(url.path).lstrip("/").partition("/")
        query = {name: values[0] for name, values in parse_qs(url.query, keep_blank_values=True).items()}
        with LOCK:
            status, content, headers = self.outcome(bucket, key, query, body)
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(content)

    do_GET = do_PUT = do_POST = do_DELETE = do_HEAD = handle_request

    def outcome(self, bucket: str, key: str, query: dict[str, str], body: bytes) -> tuple[int, bytes, dict[str, str]]:
        if self.command == "PUT" and not key:
            (self.objects.folder / bucket).mkdir(parents=True, exist_ok=True)
            return 200, b"", {}
        found = re.search(r"Credential=(\w+)", self.headers.get("Authorization", ""))
        user = found[1] if found else ""
        if user == "unknown":
            return error(403, "InvalidAccessKeyId")
        if user == "denied" or (user == "reader" and self.command != "GET"):
            return error(403, "AccessDenied")
        if not (self.objects.folder / bucket).is_dir():
            return error(404, "NoSuchBucket")
        if self.command == "PUT":
            return self.put(bucket, key, body)
        if self.command == "POST" and "delete" in query:
            names = re.findall(r"<Key>(.*?)</Key>", body.decode())
            for name in names:
                self.objects.path(bucket, name).unlink(missing_ok=True)
            deleted = "".join(f"<Deleted><Key>{name}</Key></Deleted>" for name in names)
            return 200, f"<DeleteResult>{deleted}</DeleteResult>".encode(), {}
        if self.command == "DELETE":
            self.objects.path(bucket, key).unlink(missing_ok=True)
            return 204, b"", {}
        if not key:
            return self.listing(bucket, query)
        content = self.objects.get(bucket, key)
        return error(404, "NoSuchKey") if content is None else (200, content, described(content))

    def put(self, bucket: str, key: str, body: bytes) -> tuple[int, bytes, dict[str, str]]:
        stored = self.objects.get(bucket, key)
        if not self.ignores_conditions:
            expected = self.headers.get("If-Match")
            if expected and stored is None:
                return error(404, "NoSuchKey")
            if expected and stored is not None and expected != etag(stored):
                return error(412, "PreconditionFailed")
            if self.headers.get("If-None-Match") == "*" and stored is not None:
                return error(412, "PreconditionFailed")
        self.objects.put(bucket, key, body)
        return 200, b"", {"ETag": etag(body)}

    def listing(self, bucket: str, query: dict[str, str]) -> tuple[int, bytes, dict[str, str]]:
        after = query.get("continuation-token") or query.get("start-after") or ""
        keys = [key for key in self.objects.keys(bucket) if key.startswith(query.get("prefix", "")) and key > after]
        page = keys[: min(self.page_size, int(query.get("max-keys", self.page_size)))]
        more = len(page) < len(keys)
        items = "".join(
            f"<Contents><Key>{escape(key)}</Key><LastModified>2026-01-01T00:00:00.000Z</LastModified>"
            f"<ETag>{escape(etag(content))}</ETag><Size>{len(content)}</Size></Contents>"
            for key in page
            if (content := self.objects.get(bucket, key)) is not None
        )
        token = f"<NextContinuationToken>{escape(page[-1])}</NextContinuationToken>" if more else ""
        text = f"<ListBucketResult><IsTruncated>{str(more).lower()}</IsTruncated>{token}{items}</ListBucketResult>"
        return 200, text.encode(), {"Content-Type": "application/xml"}

    def log_message(self, format: str, *arguments: object) -> None:
        pass


def etag(content: bytes) -> str:
    return f'"{hashlib.md5(content).hexdigest()}"'


def described(content: bytes) -> dict[str, str]:
    return {"ETag": etag(content), "Last-Modified": "Thu, 01 Jan 2026 00:00:00 GMT"}


def error(status: int, code: str) -> tuple[int, bytes, dict[str, str]]:
    return status, f"<Error><Code>{code}</Code><Message>{code}</Message></Error>".encode(), {}


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", type=Path)
    parser.add_argument("port", type=int)
    parser.add_argument("--page", type=int, default=1000)
    parser.add_argument("--ignore-conditions", action="store_true")
    options = parser.parse_args()
    Handler.objects = Objects(options.folder)
    Handler.page_size = options.page
    Handler.ignores_conditions = options.ignore_conditions
    ThreadingHTTPServer.daemon_threads = True
    ThreadingHTTPServer(("127.0.0.1", options.port), Handler).serve_forever()
