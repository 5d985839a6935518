"""A real nginx with the configuration as it is shipped, before replicas on this machine.

The shipped files are copied and only what names a place is replaced: ports, addresses of the replicas
and of Open WebUI, the address of the DNS server, paths of logs, pid and temporary files, and the user.
"""

import os
import pathlib
import re
import shutil
import socket
import socketserver
import struct
import subprocess
import threading
import time

from replicas import Client, free_port

DEPLOY = pathlib.Path(__file__).resolve().parents[2] / "deploy"
START_SECONDS = 10


class Nginx:
    """nginx on free ports. `replicas` are host:port; `dns` is the port of a DNS server that knows them."""

    def __init__(
        self,
        program: str,
        main: str,
        directory: pathlib.Path,
        replicas: list[str],
        openwebui: str,
        dns: int | None = None,
    ) -> None:
        self.program = program
        self.directory = directory
        self.main = directory / main
        shutil.copytree(DEPLOY / "nginx", directory, ignore=shutil.ignore_patterns("*.pem", "tls.conf", "redirect.inc"))
        for name in ["run", "tmp"]:
            (directory / name).mkdir()
        self.port, self.tls_port = free_port(), free_port()
        self.make_certificate()
        self.place(replicas, openwebui, dns)
        self.process: subprocess.Popen | None = None

    def place(self, replicas: list[str], openwebui: str, dns: int | None) -> None:
        self.replace("servers.inc", "listen 80;", f"listen 127.0.0.1:{self.port};")
        self.replace("tls/tls.conf", "listen 443 ssl;", f"listen 127.0.0.1:{self.tls_port} ssl;")
        main = self.main.name
        if os.getuid() == 0:
            # The temporary folder is closed to others.
            self.edit(main, lambda text: "user root;\n" + text.replace("user www-data;\n", ""))
        self.edit(main, lambda text: re.sub(r"error_log \S+", f"error_log {self.directory}/run/error.log", text))
        self.edit(main, lambda text: re.sub(r"access_log \S+", f"access_log {self.directory}/run/access.log", text))
        self.replace(main, "/run/nginx.pid", f"{self.directory}/run/nginx.pid")
        temporary = "".join(
            f"    {kind}_temp_path {self.directory}/tmp/{kind};\n"
            for kind in ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"]
        )
        self.replace(main, "http {\n", "http {\n" + temporary)
        if dns is None:
            for shipped, ours in zip(["127.0.0.1:8081", "127.0.0.1:8082", "127.0.0.1:8083"], replicas, strict=True):
                self.replace(main, shipped, ours)
            self.replace(main, "127.0.0.1:3000", openwebui)
        else:
            # One name stands for all of them, so they have one port and an address each.
            (port,) = {replica.rsplit(":", 1)[1] for replica in replicas}
            self.replace(main, "mcpo-bridge:8080", f"mcpo-bridge:{port}")
            self.replace(main, "openwebui:8080", f"openwebui:{openwebui.rsplit(':', 1)[1]}")
            self.replace(main, "resolver 127.0.0.11 ", f"resolver 127.0.0.1:{dns} ")

    def edit(self, name: str, change) -> None:
        file = self.directory / name
        file.write_text(change(file.read_text()))

    def replace(self, name: str, old: str, new: str) -> None:
        """A place that is not where it was would leave the test without its subject."""
        text = (self.directory / name).read_text()
        assert old in text, f"{name} has no {old!r}"
        (self.directory / name).write_text(text.replace(old, new))

    def make_certificate(self) -> None:
        """TLS as tls/README.md has it."""
        tls = self.directory / "tls"
        names = ["-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost,IP:127.0.0.1"]
        command = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "30", *names]
        command += ["-keyout", tls / "privkey.pem", "-out", tls / "fullchain.pem"]
        subprocess.run(command, check=True, capture_output=True)
        shutil.copy(tls / "tls.conf.example", tls / "tls.conf")
        self.certificate = str(tls / "fullchain.pem")

    def start(self) -> None:
        command = [self.program, "-p", self.directory, "-c", self.main, "-g", "daemon off;"]
        self.process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
        deadline = time.monotonic() + START_SECONDS
        while time.monotonic() < deadline and self.process.poll() is None:
            try:
                # A name that is looked up while nginx runs has no address in the first moment.
                with Client(self.url, timeout=5) as client:
                    paths = ["/", "/mcp/", "/files/"]
                    if all(client.status("GET", path) != 502 for path in paths):
                        return
            except OSError:
                pass
            time.sleep(0.05)
        self.process.kill()
        raise SystemExit(f"{self.program} did not start: {self.process.communicate()[1]}")

    def reload(self) -> None:
        """Returns when the workers of before are gone: until then they answer as well, by the old files."""
        before = self.workers()
        subprocess.run(
            [self.program, "-p", self.directory, "-c", self.main, "-s", "reload"], check=True, capture_output=True
        )
        deadline = time.monotonic() + START_SECONDS
        while before & self.workers():
            assert time.monotonic() < deadline, "the old workers of nginx do not end"
            time.sleep(0.02)

    def workers(self) -> set[int]:
        """Linux only."""
        pid = self.process.pid
        return {int(child) for child in pathlib.Path(f"/proc/{pid}/task/{pid}/children").read_text().split()}

    def stop(self) -> None:
        if self.process and self.process.poll() is None:
            self.process.terminate()
            try:
                self.process.wait(START_SECONDS)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()

    def errors(self) -> str:
        log = self.directory / "run" / "error.log"
        return log.read_text(errors="replace") if log.exists() else ""

    def accesses(self) -> list[list[str]]:
        """The lines of the access log, each in its words. nginx writes one when it has sent the answer."""
        log = self.directory / "run" / "access.log"
        return [line.split() for line in log.read_text(errors="replace").splitlines()] if log.exists() else []

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def tls_url(self) -> str:
        return f"https://localhost:{self.tls_port}"


def version_of(program: str) -> tuple[int, ...]:
    told = subprocess.run([program, "-v"], capture_output=True, text=True).stderr
    return tuple(int(part) for part in re.search(r"nginx/([\d.]+)", told)[1].split("."))


class Names(socketserver.ThreadingUDPServer):
    """A DNS server that knows A records, as Docker's does: several for one name, in changing order."""

    daemon_threads = True
    allow_reuse_address = True

    def __init__(self, records: dict[str, list[str]]) -> None:
        super().__init__(("127.0.0.1", 0), Answering)
        self.records = records
        self.asked = 0
        threading.Thread(target=self.serve_forever, daemon=True).start()

    @property
    def port(self) -> int:
        return self.server_address[1]


class Answering(socketserver.BaseRequestHandler):
    def handle(self) -> None:
        query, reply = self.request
        self.server.asked += 1
        labels, at = [], 12
        while query[at]:
            labels.append(query[at + 1 : at + 1 + query[at]].decode())
            at += 1 + query[at]
        question = query[12 : at + 5]
        addresses = list(self.server.records.get(".".join(labels), []))
        turn = self.server.asked % max(1, len(addresses))
        addresses = addresses[turn:] + addresses[:turn]
        if struct.unpack("!H", question[-4:-2])[0] != 1:
            addresses = []
        # A response, recursion available; the name is a pointer to the question; two seconds to live.
        code = 0 if ".".join(labels) in self.server.records else 3
        head = query[:2] + struct.pack("!HHHHH", 0x8180 | code, 1, len(addresses), 0, 0)
        answers = b"".join(struct.pack("!HHHIH", 0xC00C, 1, 1, 2, 4) + socket.inet_aton(ip) for ip in addresses)
        reply.sendto(head + question + answers, self.client_address)


class OpenWebUi(socketserver.ThreadingTCPServer):
    """Stands in for Open WebUI: tells what headers came, takes a WebSocket's handshake, and streams lines."""

    daemon_threads = True
    allow_reuse_address = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Echoing)
        threading.Thread(target=self.serve_forever, daemon=True).start()

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.server_address[1]}"


class Echoing(socketserver.StreamRequestHandler):
    def handle(self) -> None:
        head = []
        while (line := self.rfile.readline().decode().rstrip("\r\n")) != "":
            head.append(line)
        if any(line.lower() == "upgrade: websocket" for line in head):
            self.wfile.write(b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\r\n")
            while data := self.rfile.read1(4096):
                self.wfile.write(data)
            return
        if streamed := re.match(r"GET /stream\?steps=(\d+)&ms=(\d+) ", head[0]):
            steps, pause = map(int, streamed.groups())
            self.wfile.write(b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Type: text/event-stream\r\n\r\n")
            for _ in range(steps):
                self.wfile.write(b"data\n")
                time.sleep(pause / 1000)
            return
        body = "\n".join(head).encode()
        self.wfile.write(b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: %d\r\n\r\n" % len(body) + body)
