"""An npm registry on loopback with the packages of a folder, so that they are installed as from the real one.

For packages.py; standard library only.
"""

import base64
import contextlib
import hashlib
import http.server
import json
import pathlib
import tarfile
import threading


def manifest(archive: pathlib.Path) -> dict:
    with tarfile.open(archive) as tar:
        return json.load(tar.extractfile("package/package.json"))


def document(archive: pathlib.Path, address: str) -> dict:
    """What a registry says of a package of which it has this one version."""
    package, content = manifest(archive), archive.read_bytes()
    digest = base64.b64encode(hashlib.sha512(content).digest()).decode()
    dist = {"tarball": f"{address}/{archive.name}", "integrity": f"sha512-{digest}"}
    version = package["version"]
    return {"name": package["name"], "dist-tags": {"latest": version}, "versions": {version: package | {"dist": dist}}}


@contextlib.contextmanager
def registry(archives: list[pathlib.Path]):
    """Gives its address."""

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            name = self.path.strip("/")
            address = f"http://127.0.0.1:{self.server.server_port}"
            files = {archive.name: archive for archive in archives}
            packages = {manifest(archive)["name"]: archive for archive in archives}
            if name in files:
                self.answer(200, files[name].read_bytes())
            elif name in packages:
                self.answer(200, json.dumps(document(packages[name], address)).encode())
            else:
                self.answer(404, b"{}")

        def answer(self, status: int, body: bytes) -> None:
            self.send_response(status)
            self.send_header("Content-Type", "application/json" if body[:1] == b"{" else "application/octet-stream")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_) -> None:
            pass

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
