"""People who use the servers of `examples` through Open WebUI, and what they read of an answer.

For `office.py` and `browser.py`. Standard library only.
"""

import base64
import hashlib
import hmac
import json
import pathlib
import re
import time
import urllib.parse
import uuid

REPOSITORY = pathlib.Path(__file__).resolve().parents[2]
API_KEY = "an-api-key-of-these-tests"
JWT_SECRET = "a-secret-that-open-webui-would-have"


class Person:
    """Somebody in one chat of Open WebUI, which signs who it is."""

    def __init__(self, name: str, chat: str | None = None) -> None:
        self.name = name
        self.chat = chat or str(uuid.uuid4())

    def headers(self) -> dict:
        return {
            "Authorization": f"Bearer {API_KEY}",
            "X-OpenWebUI-User-Jwt": self.token(),
            "X-OpenWebUI-Chat-Id": self.chat,
        }

    def plain_headers(self) -> dict:
        """Who it is as Open WebUI says it that has no secret to sign with."""
        return {
            "Authorization": f"Bearer {API_KEY}",
            "X-OpenWebUI-User-Id": f"id-of-{self.name}",
            "X-OpenWebUI-Chat-Id": self.chat,
        }

    def token(self) -> str:
        now = int(time.time())
        claims = {
            "sub": f"id-of-{self.name}",
            "email": f"{self.name}@example.org",
            "name": self.name,
            "role": "user",
            "iss": "open-webui",
            "iat": now,
            "exp": now + 300,
        }
        signed = f"{encode({'alg': 'HS256', 'typ': 'JWT'})}.{encode(claims)}"
        seal = hmac.new(JWT_SECRET.encode(), signed.encode(), hashlib.sha256).digest()
        return f"{signed}.{base64.urlsafe_b64encode(seal).decode().rstrip('=')}"


def shipped_servers(example: str) -> dict:
    text = (REPOSITORY / "examples" / example / "mcp-servers.json").read_text()
    return json.loads(re.sub(r"(?m)^\s*//.*$", "", text))["mcpServers"]


def encode(part: dict) -> str:
    return base64.urlsafe_b64encode(json.dumps(part).encode()).decode().rstrip("=")


def texts(result: dict) -> list[str]:
    """All that the model reads of an answer."""
    blocks = result["content"]
    return [block.get("text") or block.get("resource", {}).get("text", "") for block in blocks]


def link_in(result: dict, name: str) -> str:
    """The link to the file, from the text that the model reads."""
    links = set(re.findall(r"/files/[0-9a-f-]{36}/[^\s\"\\)>\]]+", "\n".join(texts(result))))
    ours = [link for link in links if urllib.parse.unquote(link.split("?")[0]).endswith("/" + name)]
    assert len(ours) == 1, f"{len(ours)} links to {name} in {result['content']}"
    return ours[0]
