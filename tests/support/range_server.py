"A web server of a folder, for tests and benchmarks: ranges, ETags, a latency for each answer, and faults that a test chooses."
import hashlib
import re
import threading
import time
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

Fault = Callable[[str, int], 'int | float | str | None']


class _Handler(BaseHTTPRequestHandler):
    protocol_version = 'HTTP/1.1'
    disable_nagle_algorithm = True
    wbufsize = 1 << 16   # head and body leave together

    def log_message(self, *args): pass

    def send(self, status: int, body: bytes = b'', **headers: str):
        self.send_response(status)
        for name, value in {'Content_Length': str(len(body)), **headers}.items(): self.send_header(name.replace('_', '-'), value)
        self.end_headers()
        if self.command != 'HEAD': self.wfile.write(body)

    def do_GET(self):
        owner = self.server.owner
        with owner.at_work() as number:
            time.sleep(owner.latency)
            fault = owner.fault(self.path, number)
            if isinstance(fault, float): time.sleep(fault)
            if isinstance(fault, int): return self.send(fault)
            path = owner.root/self.path.lstrip('/')
            if not path.is_file(): return self.send(404)
            data, etag = owner.content(path)
            found = re.fullmatch(r'bytes=(\d+)-(\d+)', self.headers.get('Range', ''))
            if not found or fault == 'whole': return self.send(200, data, ETag=etag)
            start, stop = int(found[1]), min(int(found[2]) + 1, len(data))
            if start >= len(data): return self.send(416)
            body = data[start:stop]
            owner.spans.append((self.path, start, stop))
            headers = {'Content_Range': f'bytes {start}-{stop - 1}/{len(data)}', 'ETag': etag}
            if fault == 'cut':
                headers['Content_Length'], body = str(len(body)), body[:len(body) // 2]
                self.close_connection = True
            self.send(206, body, **headers)

    do_HEAD = do_GET


class _Server(ThreadingHTTPServer):
    daemon_threads, request_queue_size, allow_reuse_address = True, 512, True

    def handle_error(self, request, client_address): pass   # the client has gone


class RangeServer:
    """Serve a folder on 127.0.0.1.

    `latency` is waited before each answer. `fault(path, number)` of a request, counted from 0, gives None, a status, seconds to
    wait (a float), 'cut': half of the body comes, or 'whole': the range is ignored. `most` is how many requests were here at the same time.
    """
    def __init__(self, root: Path, latency: float = 0., fault: Fault = lambda path, number: None):
        self.root, self.latency, self.fault = Path(root), latency, fault
        self.spans, self.num, self.now, self.most, self._lock, self.port = [], 0, 0, 0, threading.Lock(), 0
        self._contents = {}
        self.start()

    @property
    def url(self) -> str: return f'http://127.0.0.1:{self.port}'

    def at_work(self): return _AtWork(self)

    def content(self, path: Path) -> tuple[bytes, str]:
        "The bytes of a file and their ETag, read once for each version of it."
        stat = path.stat()
        key = path, stat.st_size, stat.st_mtime_ns, stat.st_ino
        if key not in self._contents:
            data = path.read_bytes()
            self._contents[key] = data, f'"{hashlib.md5(data).hexdigest()}"'
        return self._contents[key]

    def start(self):
        self._server = _Server(('127.0.0.1', self.port), _Handler)
        self._server.owner, self.port, self._open = self, self._server.server_address[1], True
        threading.Thread(target=self._server.serve_forever, args=(0.02,), daemon=True).start()

    def stop(self):
        if not self._open: return
        self._open = False
        self._server.shutdown()
        self._server.server_close()

    def __enter__(self): return self

    def __exit__(self, *error): self.stop()


def serve(root: Path, latency: float, pipe):
    "Run a server in a separate process, for measurements: its URL goes into the pipe, and it ends with what comes out of it."
    with RangeServer(root, latency) as server:
        pipe.send(server.url)
        pipe.recv()


class _AtWork:
    "Count a request while it is here."
    def __init__(self, owner: RangeServer): self.owner = owner

    def __enter__(self) -> int:
        with self.owner._lock:
            self.owner.num, self.owner.now = self.owner.num + 1, self.owner.now + 1
            self.owner.most = max(self.owner.most, self.owner.now)
            return self.owner.num - 1

    def __exit__(self, *error):
        with self.owner._lock: self.owner.now -= 1
