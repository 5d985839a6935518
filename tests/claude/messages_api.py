#!/usr/bin/env python3
"""A scripted stand-in for the Anthropic Messages API, on loopback only.

It lets a test drive the real Claude Code CLI (or any Messages API client) end to
end without a network and without a model: the "model" is a JSON script of turns.
Standard library only, Python 3.9 or later.

START
    python3 messages_api.py --script turns.json [--port 0] [--port-file F] [--log F.jsonl]

    The first line on stdout is   LISTENING http://127.0.0.1:<port>
    (with --port-file the bare port number is also written to F, atomically).
    The server stops on SIGTERM / SIGINT, or when its stdin is closed if it was
    started with --exit-with-stdin (so it cannot outlive a test that was killed).

    Point a client at it:
        ANTHROPIC_BASE_URL=http://127.0.0.1:<port>  ANTHROPIC_API_KEY=anything

SCRIPT
    A JSON object, or a bare list which is taken as {"turns": [...]}.

    {
      "turns": [ TURN, TURN, ... ],     what the model says, in order
      "after": TURN,                    said when the turns are used up
                                        (default: text "[script exhausted]")
      "side":  TURN,                    said to side requests, see below
                                        (default: text "ok")
      "side_rule": "no_tools",          which requests are side requests:
                                        "no_tools" (default) | "never"
      "any_schema": true,               take tools whose schema is not valid (default false:
                                        they are answered 400, as the real API does)
      "strict_tools": true,             answer 400 when a scripted tool_use names a
                                        tool the request does not offer (default false)
      "count_from": "start",            see WHICH TURN ANSWERS A REQUEST
      "conversations": [                other conversations (a subagent, say) told apart
        {"match": "regex",              by their first user message; the first whose
         "turns": [...],                regex is found there wins, else the turns above
         "after": TURN}, ...]
    }

    TURN is one of
      "some text"                             one text block
      [BLOCK, BLOCK, ...]                     several blocks in one assistant message
      {"content": [BLOCK, ...], ...options}   blocks with options
      {"error": {"status": 529, "type": "overloaded_error", "message": "..."}, "times": 1}
                                              an HTTP error; it is answered "times" times
                                              (default 1) for this place in the
                                              conversation, then the "then" turn is said:
                                              {"error": {...}, "times": 2, "then": TURN}

    BLOCK is one of
      "some text"
      {"type": "text", "text": "..."}
      {"type": "thinking", "thinking": "...", "signature": "..."}
      {"type": "tool_use", "name": "mcp__server__tool", "input": {...}, "id": "toolu_x"}
      {"tool": "mcp__server__tool", "input": {...}}         short form of tool_use
    Two tool_use blocks in one TURN ask for two calls in the same assistant message.

    Options of a TURN object
      "stop_reason"      default: "tool_use" if there is a tool_use block, else "end_turn"
      "delay_ms"         wait before the first byte
      "chunk_chars"      size of each streamed delta (default 64)
      "chunk_delay_ms"   wait between deltas (default 0)
      "cut_after_events" drop the connection after that many SSE events
      "usage"            {"input_tokens": n, "output_tokens": n, ...} merged over defaults
      "until_tool"       the turn is said again and again until a request offers the tool of this
                         name; the turn after it then, which has to call other tools

    Templates, expanded in every string of a TURN when it is said
      {{tool_result}}      text of the last tool_result of the request
      {{tool_result:N}}    text of the N-th tool_result (0-based) of the last user message
      {{tool_error}}       "true" / "false": is_error of that last tool_result
      {{tool_names}}       comma-separated names of the offered tools
      {{turn}}             index of the turn
      {{blob:N}}           N characters of filler ("x")

WHICH TURN ANSWERS A REQUEST
    The number of assistant messages already in the request's "messages" (or in those
    after its last plain-text user message, with "count_from": "last_prompt" in the
    script). So the choice depends on the request alone: retries get the same turn, and
    several conversations may use one server at once.
    A side request is one that offers no tools (a title or a summary, say): it never
    consumes a turn.

ENDPOINTS
    POST /v1/messages                streaming (SSE) if "stream": true, else plain JSON
    POST /v1/messages/count_tokens   {"input_tokens": <characters / 4>}
    GET  /v1/models                  a small list
    GET|HEAD /                       200
    GET  /_fake/requests             JSON list of all requests seen so far (see --log)
    GET  /_fake/summary              turns said, tools offered, tool results received
    POST /_fake/script               replace the script (body: a script), clear the record
    anything else                    404, and it is recorded

RECORD
    With --log each request is appended as one JSON line:
    {"n", "t", "t_end", "method", "path", "headers", "body", "turn", "side", "status", "refused"}
    "t" and "t_end" are seconds on the monotonic clock; "n" follows the order of the ends.
    "status" is the HTTP status, -1 for a scripted cut, -2 when the client went away.
    "refused" is what was said against a tool whose schema is not valid.
    A record is made just before the last bytes of its answer are sent, so a client that has
    seen the end of an answer also finds its record. Header values that could carry a
    credential are replaced by "<redacted>".

EXAMPLE
    turns.json:  [[{"tool": "mcp__demo__add", "input": {"a": 2, "b": 40}}],
                  "The answer is {{tool_result}}."]
    claude -p "go" --output-format stream-json --verbose --strict-mcp-config \\
           --mcp-config '{"mcpServers":{"demo":{"command":"./my-mcp-server"}}}' \\
           --allowedTools mcp__demo__add
    ends with a result message whose "result" is "The answer is 42."

    Run it with a fresh HOME and a clean environment, for example
        env -i PATH=/usr/bin:/bin HOME="$(mktemp -d)" ANTHROPIC_API_KEY=fake-key \\
            ANTHROPIC_BASE_URL=http://127.0.0.1:<port> DISABLE_TELEMETRY=1 \\
            DISABLE_AUTOUPDATER=1 DISABLE_ERROR_REPORTING=1 \\
            CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC=1 claude -p ...
    and with stdin from /dev/null: with "-p" and an open stdin the CLI waits 3 s for it.

    Recent CLI versions do not put MCP tools into the request's "tools" at first: they are
    deferred behind a ToolSearch tool (yet a scripted tool_use of a deferred MCP tool is
    carried out). To have them offered, as {{tool_names}} and "strict_tools" need, set
    "alwaysLoad": true in the server's MCP configuration or ENABLE_TOOL_SEARCH=false.
"""
import argparse
import copy
import json
import os
import re
import signal
import sys
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

SECRET_HEADERS = {"authorization", "x-api-key", "cookie", "proxy-authorization"}


class ScriptError(ValueError):
    pass


class Script:
    def __init__(self, raw):
        if isinstance(raw, list):
            raw = {"turns": raw}
        if not isinstance(raw, dict):
            raise ScriptError("a script is a JSON object or list")
        known = {"turns", "after", "side", "side_rule", "strict_tools", "any_schema", "count_from", "conversations"}
        unknown = set(raw) - known
        if unknown:
            raise ScriptError("unknown script keys: %s" % ", ".join(sorted(unknown)))
        self.turns = [normal_turn(t) for t in raw.get("turns", [])]
        self.after = normal_turn(raw.get("after", "[script exhausted]"))
        self.side = normal_turn(raw.get("side", "ok"))
        self.side_rule = raw.get("side_rule", "no_tools")
        if self.side_rule not in ("no_tools", "never"):
            raise ScriptError("side_rule is no_tools or never")
        self.count_from = raw.get("count_from", "start")
        if self.count_from not in ("start", "last_prompt"):
            raise ScriptError("count_from is start or last_prompt")
        self.strict_tools = bool(raw.get("strict_tools", False))
        self.any_schema = bool(raw.get("any_schema", False))
        self.conversations = []
        for conv in raw.get("conversations", []):
            if not isinstance(conv, dict) or "match" not in conv:
                raise ScriptError("a conversation needs match and turns")
            self.conversations.append((re.compile(conv["match"]),
                                       [normal_turn(t) for t in conv.get("turns", [])],
                                       normal_turn(conv["after"]) if "after" in conv else self.after))

    def branch(self, messages):
        first = next((text_of(m.get("content")) for m in messages if m.get("role") == "user"), "")
        for pattern, turns, after in self.conversations:
            if pattern.search(first):
                return turns, after
        return self.turns, self.after

    def choose(self, body):
        """-> (turn index or None for a side request, turn)"""
        if self.side_rule == "no_tools" and not body.get("tools"):
            return None, self.side
        messages = body.get("messages") or []
        turns, after = self.branch(messages)
        if self.count_from == "last_prompt":
            start = 0
            for i, m in enumerate(messages):
                if m.get("role") == "user" and not tool_results(m):
                    start = i
            messages = messages[start:]
        index = 0
        for message in messages:
            if message.get("role") == "assistant" and not is_said_again(turns, index, message):
                # One that was said again until then is over with the first of the next turn.
                index += 2 if until_tool(turns, index) else 1
        if until_tool(turns, index) in {t.get("name") for t in body.get("tools") or []}:
            index += 1
        if index < len(turns):
            return index, turns[index]
        return index, after


def until_tool(turns, index):
    return turns[index].get("until_tool") if index < len(turns) else None


def is_said_again(turns, index, message):
    """Whether this is one of the times that a turn with "until_tool" was said."""
    if until_tool(turns, index) is None:
        return False
    content = message.get("content")
    said = [b.get("name") for b in content if b.get("type") == "tool_use"] if isinstance(content, list) else []
    return said == [b["name"] for b in turns[index]["content"] if b["type"] == "tool_use"]


def normal_block(block):
    if isinstance(block, str):
        return {"type": "text", "text": block}
    if not isinstance(block, dict):
        raise ScriptError("a block is a string or an object: %r" % (block,))
    if "tool" in block:
        block = dict(block)
        block["type"] = "tool_use"
        block["name"] = block.pop("tool")
    kind = block.get("type")
    if kind == "tool_use":
        if not isinstance(block.get("name"), str):
            raise ScriptError("a tool_use block needs a name")
        return {"input": {}, **block}
    if kind in ("text", "thinking"):
        return dict(block)
    raise ScriptError("unknown block: %r" % (block,))


def normal_turn(turn):
    if isinstance(turn, (str, list)):
        turn = {"content": [turn] if isinstance(turn, str) else turn}
    if not isinstance(turn, dict):
        raise ScriptError("a turn is a string, a list or an object: %r" % (turn,))
    turn = dict(turn)
    if "error" in turn:
        turn.setdefault("times", 1)
        turn["then"] = normal_turn(turn.get("then", "[after error]"))
        return turn
    if "content" not in turn:
        raise ScriptError("a turn needs content or error: %r" % (turn,))
    turn["content"] = [normal_block(b) for b in turn["content"]]
    return turn


def text_of(content):
    if isinstance(content, str):
        return content
    parts = []
    for item in content or []:
        if isinstance(item, str):
            parts.append(item)
        elif isinstance(item, dict):
            parts.append(item.get("text") if item.get("type") == "text" else "<%s>" % item.get("type"))
    return "".join(p or "" for p in parts)


def tool_results(message):
    content = message.get("content")
    if not isinstance(content, list):
        return []
    return [b for b in content if isinstance(b, dict) and b.get("type") == "tool_result"]


def expand(value, env):
    if isinstance(value, str):
        return re.sub(r"\{\{(\w+)(?::(\d+))?\}\}", lambda m: env(m.group(1), m.group(2), m.group(0)), value)
    if isinstance(value, list):
        return [expand(v, env) for v in value]
    if isinstance(value, dict):
        return {k: expand(v, env) for k, v in value.items()}
    return value


def make_env(body, index):
    results = []
    for message in body.get("messages") or []:
        found = tool_results(message)
        if found:
            results = found

    def env(name, arg, whole):
        if name == "tool_result":
            if not results:
                return ""
            i = int(arg) if arg is not None else -1
            return text_of(results[i].get("content")) if i < len(results) else ""
        if name == "tool_error":
            return "true" if results and results[-1].get("is_error") else "false"
        if name == "tool_names":
            return ",".join(t.get("name", "?") for t in body.get("tools") or [])
        if name == "turn":
            return str(index)
        if name == "blob" and arg is not None:
            return "x" * int(arg)
        return whole

    return env


# -- the schemas of tools ------------------------------------------------------
# What the meta-schema of draft 2020-12 says of each keyword, and the API's own rules for the root.

TYPES = {"array", "boolean", "integer", "null", "number", "object", "string"}


def is_number(value):
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def is_size(value):
    return is_number(value) and value >= 0 and float(value).is_integer()


def is_names(value):
    return isinstance(value, list) and all(isinstance(v, str) for v in value) and len(set(value)) == len(value)


def is_type(value):
    if isinstance(value, list):
        return len(value) > 0 and is_names(value) and set(value) <= TYPES
    return isinstance(value, str) and value in TYPES


def is_text(value):
    return isinstance(value, str)


def is_schema(value):
    if isinstance(value, bool):
        return True
    return isinstance(value, dict) and all(FORMS.get(k, is_anything)(v) for k, v in value.items())


def is_schemas(value):
    return isinstance(value, list) and len(value) > 0 and all(is_schema(v) for v in value)


def is_map(value):
    return isinstance(value, dict) and all(is_schema(v) for v in value.values())


def is_anything(_):
    return True


def is_text_like(pattern):
    return lambda value: isinstance(value, str) and re.search(pattern, value) is not None


FORMS = {
    "type": is_type,
    "required": is_names,
    "enum": lambda v: isinstance(v, list),
    "examples": lambda v: isinstance(v, list),
    "multipleOf": lambda v: is_number(v) and v > 0,
    "dependentRequired": lambda v: isinstance(v, dict) and all(is_names(n) for n in v.values()),
    "dependencies": lambda v: isinstance(v, dict) and all(is_names(n) or is_schema(n) for n in v.values()),
    "$id": is_text_like(r"^[^#]*#?$"),
    "$anchor": is_text_like(r"^[A-Za-z_][-A-Za-z0-9._]*$"),
    "$dynamicAnchor": is_text_like(r"^[A-Za-z_][-A-Za-z0-9._]*$"),
}
for names, form in (
        ("properties patternProperties dependentSchemas $defs definitions", is_map),
        ("items contains additionalProperties propertyNames unevaluatedItems unevaluatedProperties "
         "not if then else contentSchema", is_schema),
        ("allOf anyOf oneOf prefixItems", is_schemas),
        ("minimum maximum exclusiveMinimum exclusiveMaximum", is_number),
        ("minLength maxLength minItems maxItems minProperties maxProperties minContains maxContains", is_size),
        ("uniqueItems deprecated readOnly writeOnly", lambda v: isinstance(v, bool)),
        ("title description $comment format pattern contentEncoding contentMediaType "
         "$schema $ref $dynamicRef", is_text)):
    for name in names.split():
        FORMS[name] = form


def tools_fault(tools):
    """What the API says against the first tool that it does not take, or None."""
    for n, tool in enumerate(tools):
        if not isinstance(tool, dict) or tool.get("type", "custom") != "custom":
            continue
        at = "tools.%d.custom." % n
        if not re.fullmatch(r"[a-zA-Z0-9_-]{1,128}", str(tool.get("name"))):
            return at + "name: String should match pattern '^[a-zA-Z0-9_-]{1,128}$'"
        schema = tool.get("input_schema")
        if not isinstance(schema, dict):
            return at + "input_schema: Input should be a valid dictionary"
        if "type" not in schema:
            return at + "input_schema.type: Field required"
        if schema["type"] != "object":
            return at + "input_schema.type: Input should be 'object'"
        if not is_schema(schema):
            return (at + "input_schema: JSON schema is invalid. It must match JSON Schema draft 2020-12 "
                    "(https://json-schema.org/draft/2020-12).")
        if {"oneOf", "allOf", "anyOf"} & set(schema):
            return at + "input_schema: input_schema does not support oneOf, allOf, or anyOf at the top level"
        for key in schema.get("properties") or {}:
            if not re.fullmatch(r"[a-zA-Z0-9_.-]{1,64}", key):
                return at + "input_schema.properties: Property keys should match pattern '^[a-zA-Z0-9_.-]{1,64}$'"
    return None


class State:
    def __init__(self, script, log_path):
        self.lock = threading.Lock()
        self.script = script
        self.log = open(log_path, "a", encoding="utf-8") if log_path else None
        self.records = []
        self.errors_said = {}
        self.next_id = 0

    def fresh_id(self, prefix):
        with self.lock:
            self.next_id += 1
            return "%s_fake%06d" % (prefix, self.next_id)

    def record(self, rec):
        with self.lock:
            rec["n"] = len(self.records)
            self.records.append(rec)
            if self.log:
                self.log.write(json.dumps(rec, ensure_ascii=False) + "\n")
                self.log.flush()

    def take_error(self, key, times):
        with self.lock:
            said = self.errors_said.get(key, 0)
            if said < times:
                self.errors_said[key] = said + 1
                return True
            return False

    def replace(self, script):
        with self.lock:
            self.script = script
            self.records = []
            self.errors_said = {}


class Cut(Exception):
    pass


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    state = None
    # small SSE events are written one by one; do not let Nagle hold them back
    disable_nagle_algorithm = True

    def log_message(self, *_):
        pass

    # -- plain answers ---------------------------------------------------------
    def reply(self, status, value, headers=()):
        data = b"" if value is None else json.dumps(value).encode()
        self.send_response(status)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(data)))
        for k, v in headers:
            self.send_header(k, v)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(data)

    def note(self, status, started, body=None, turn=None, side=False, refused=None):
        self.state.record({
            "t": round(started, 6),
            "t_end": round(time.monotonic(), 6),
            "method": self.command,
            "path": self.path,
            "headers": {k.lower(): ("<redacted>" if k.lower() in SECRET_HEADERS else v)
                        for k, v in self.headers.items()},
            "body": body,
            "turn": turn,
            "side": side,
            "status": status,
            "refused": refused,
        })

    def read_body(self):
        if "chunked" in (self.headers.get("transfer-encoding") or "").lower():
            parts = []
            while True:
                size = int(self.rfile.readline().split(b";")[0].strip() or b"0", 16)
                part = self.rfile.read(size)
                self.rfile.readline()
                if size == 0:
                    return b"".join(parts)
                parts.append(part)
        return self.rfile.read(int(self.headers.get("content-length") or 0))

    # -- routes ----------------------------------------------------------------
    def do_HEAD(self):
        self.do_GET()

    def do_GET(self):
        started = time.monotonic()
        path = self.path.split("?")[0]
        if path == "/_fake/requests":
            with self.state.lock:
                records = list(self.state.records)
            return self.reply(200, records)
        if path == "/_fake/summary":
            return self.reply(200, self.summary())
        if path == "/":
            self.reply(200, {"ok": True})
            return self.note(200, started)
        if path == "/v1/models":
            self.reply(200, {"data": [{"type": "model", "id": "claude-sonnet-4-5", "display_name": "Fake",
                                       "created_at": "2025-01-01T00:00:00Z"}],
                             "has_more": False, "first_id": None, "last_id": None})
            return self.note(200, started)
        self.reply(404, api_error("not_found_error", "no such path"))
        self.note(404, started)

    def do_POST(self):
        started = time.monotonic()
        raw = self.read_body()
        path = self.path.split("?")[0]
        try:
            body = json.loads(raw or b"null")
        except ValueError:
            body = {"unparsed": raw.decode("utf-8", "replace")}
        if path == "/_fake/script":
            try:
                self.state.replace(Script(body))
            except ScriptError as err:
                return self.reply(400, api_error("invalid_request_error", str(err)))
            return self.reply(200, {"ok": True})
        if path == "/v1/messages/count_tokens":
            self.reply(200, {"input_tokens": max(1, len(raw) // 4)})
            return self.note(200, started, body)
        if path == "/v1/messages" and isinstance(body, dict):
            return self.messages(body, started)
        self.reply(404, api_error("not_found_error", "no such path"))
        self.note(404, started, body)

    def summary(self):
        with self.state.lock:
            records = list(self.state.records)
        out = {"requests": len(records), "turns": [], "side": 0, "tools": [], "tool_results": []}
        for rec in records:
            if rec["path"].split("?")[0] != "/v1/messages":
                continue
            if rec["side"]:
                out["side"] += 1
                continue
            out["turns"].append(rec["turn"])
            out["tools"] = [t.get("name") for t in rec["body"].get("tools") or []]
            messages = rec["body"].get("messages") or [{}]
            for res in tool_results(messages[-1]):
                out["tool_results"].append({"tool_use_id": res.get("tool_use_id"),
                                            "is_error": bool(res.get("is_error")),
                                            "text": text_of(res.get("content"))})
        return out

    # -- the model -------------------------------------------------------------
    def messages(self, body, started):
        script = self.state.script
        index, turn = script.choose(body)
        side = index is None
        fault = None if script.any_schema else tools_fault(body.get("tools") or [])
        if fault:
            self.note(400, started, body, index, side, refused=fault)
            return self.reply(400, api_error("invalid_request_error", fault))
        depth = 0
        while "error" in turn:
            err = turn["error"]
            if self.state.take_error((id(turn), index, depth), turn["times"]):
                status = int(err.get("status", 500))
                headers = [("retry-after", str(err["retry_after"]))] if "retry_after" in err else []
                self.note(status, started, body, index, side)
                return self.reply(status, api_error(err.get("type", "api_error"),
                                                    err.get("message", "scripted error")), headers)
            turn, depth = turn["then"], depth + 1

        env = make_env(body, index)
        turn = {**turn, "content": expand(copy.deepcopy(turn["content"]), env)}
        if script.strict_tools and not side:
            offered = {t.get("name") for t in body.get("tools") or []}
            for block in turn["content"]:
                if block["type"] == "tool_use" and block["name"] not in offered:
                    self.note(400, started, body, index, side)
                    return self.reply(400, api_error("invalid_request_error",
                                                     "scripted tool %s is not offered" % block["name"]))
        for block in turn["content"]:
            if block["type"] == "tool_use":
                block.setdefault("id", self.state.fresh_id("toolu"))
        if turn.get("delay_ms"):
            time.sleep(turn["delay_ms"] / 1000)

        has_tool = any(b["type"] == "tool_use" for b in turn["content"])
        stop = turn.get("stop_reason") or ("tool_use" if has_tool else "end_turn")
        out_chars = len(json.dumps(turn["content"]))
        usage = {"input_tokens": max(1, len(json.dumps(body)) // 4),
                 "cache_creation_input_tokens": 0, "cache_read_input_tokens": 0,
                 "output_tokens": max(1, out_chars // 4), "service_tier": "standard"}
        usage.update(turn.get("usage") or {})
        message = {"id": self.state.fresh_id("msg"), "type": "message", "role": "assistant",
                   "model": body.get("model", "fake"), "content": [], "stop_reason": None,
                   "stop_sequence": None, "usage": {**usage, "output_tokens": 1}}
        noted = []

        def note(status):
            if not noted:
                noted.append(status)
                self.note(status, started, body, index, side)

        try:
            if body.get("stream"):
                self.stream(message, turn, stop, usage, note)
            else:
                message.update(content=turn["content"], stop_reason=stop, usage=usage)
                note(200)
                self.reply(200, message)
        except Cut:
            note(-1)
            self.close_connection = True
        except (BrokenPipeError, ConnectionResetError):
            note(-2)
            self.close_connection = True

    def stream(self, message, turn, stop, usage, note):
        self.send_response(200)
        self.send_header("content-type", "text/event-stream; charset=utf-8")
        self.send_header("cache-control", "no-cache")
        self.send_header("transfer-encoding", "chunked")
        self.send_header("request-id", self.state.fresh_id("req"))
        self.end_headers()
        sent = 0
        cut = turn.get("cut_after_events")

        def event(value):
            nonlocal sent
            if cut is not None and sent >= cut:
                self.wfile.flush()
                self.connection.close()
                raise Cut()
            data = ("event: %s\ndata: %s\n\n" % (value["type"], json.dumps(value, ensure_ascii=False))).encode()
            self.wfile.write(b"%x\r\n%s\r\n" % (len(data), data))
            self.wfile.flush()
            sent += 1

        step = max(1, int(turn.get("chunk_chars", 64)))
        pause = turn.get("chunk_delay_ms", 0) / 1000
        event({"type": "message_start", "message": message})
        event({"type": "ping"})
        for i, block in enumerate(turn["content"]):
            kind = block["type"]
            if kind == "text":
                start, full, delta, key = {"type": "text", "text": ""}, block["text"], "text_delta", "text"
            elif kind == "thinking":
                start = {"type": "thinking", "thinking": "", "signature": ""}
                full, delta, key = block["thinking"], "thinking_delta", "thinking"
            else:
                start = {"type": "tool_use", "id": block["id"], "name": block["name"], "input": {}}
                full, delta, key = json.dumps(block["input"], ensure_ascii=False), "input_json_delta", "partial_json"
            event({"type": "content_block_start", "index": i, "content_block": start})
            for at in range(0, len(full), step):
                event({"type": "content_block_delta", "index": i,
                       "delta": {"type": delta, key: full[at:at + step]}})
                if pause:
                    time.sleep(pause)
            if kind == "thinking":
                event({"type": "content_block_delta", "index": i,
                       "delta": {"type": "signature_delta", "signature": block.get("signature", "fake")}})
            event({"type": "content_block_stop", "index": i})
        event({"type": "message_delta", "delta": {"stop_reason": stop, "stop_sequence": None}, "usage": usage})
        if cut is None or sent < cut:
            note(200)
        event({"type": "message_stop"})
        self.wfile.write(b"0\r\n\r\n")
        self.wfile.flush()


def api_error(kind, text):
    return {"type": "error", "error": {"type": kind, "message": text}}


class Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 128

    def handle_error(self, request, client_address):
        kind = sys.exc_info()[0]
        if kind and issubclass(kind, (ConnectionError, OSError)):
            return
        super().handle_error(request, client_address)


def main():
    ap = argparse.ArgumentParser(description="scripted fake of the Messages API (loopback only)")
    ap.add_argument("--script", help="JSON file with the turns (default: none, 'after' answers)")
    ap.add_argument("--port", type=int, default=0)
    ap.add_argument("--port-file")
    ap.add_argument("--log")
    ap.add_argument("--exit-with-stdin", action="store_true")
    args = ap.parse_args()

    raw = []
    if args.script:
        with open(args.script, encoding="utf-8") as f:
            raw = json.load(f)
    Handler.state = State(Script(raw), args.log)
    server = Server(("127.0.0.1", args.port), Handler)
    port = server.server_address[1]
    if args.port_file:
        with open(args.port_file + ".part", "w") as f:
            f.write(str(port))
        os.replace(args.port_file + ".part", args.port_file)
    print("LISTENING http://127.0.0.1:%d" % port, flush=True)

    def stop(*_):
        threading.Thread(target=server.shutdown, daemon=True).start()

    signal.signal(signal.SIGTERM, stop)
    signal.signal(signal.SIGINT, stop)
    if args.exit_with_stdin:
        def watch():
            while sys.stdin.buffer.read(4096):
                pass
            stop()
        threading.Thread(target=watch, daemon=True).start()
    try:
        server.serve_forever(poll_interval=0.1)
    finally:
        server.server_close()


if __name__ == "__main__":
    main()
