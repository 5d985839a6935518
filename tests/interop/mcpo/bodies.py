#!/usr/bin/env python3
"""What mcpo makes of the bodies of requests, written down for the tests of crates/schema, which run without it.

    $PONTOON_TEST_CACHE/mcpo/bin/python tests/interop/mcpo/bodies.py > crates/schema/tests/mcpo-bodies.jsonl

Every line is a case: a schema, a body, and what mcpo answers: the arguments that its server gets, or `detail` with status 422, or
another status. The body is a text, since some are no JSON. It runs in mcpo's own code with a server that is an object here.
"""

import asyncio
import json
import logging

from fastapi import FastAPI
from fastapi.testclient import TestClient
from mcp import types
from mcpo.main import create_dynamic_endpoints

STRING, INTEGER, NUMBER, BOOLEAN = ({"type": word} for word in ("string", "integer", "number", "boolean"))
NULL, LIST, OBJECT = ({"type": word} for word in ("null", "array", "object"))


def any_of(*schemas: dict) -> dict:
    return {"anyOf": list(schemas)}


def list_of(schema: dict) -> dict:
    return {"type": "array", "items": schema}


def object_of(required: str = "", **properties: dict) -> dict:
    return {"type": "object", "properties": properties} | ({"required": required.split()} if required else {})


# Values of one required argument `it`.
VALUES = [
    (STRING, ['"x"', '""', "5", "1.5", "true", "null", "[]", "{}", '"\\ud83d\\ude00\\n"']),
    (INTEGER, ["5", "-5", "1.5", "3.0", "-3.0", "-0.0", "1e3", "-1E2", "12345678901234567890123", "true", "false", "null", "[]", "{}"]),
    (INTEGER, ['"12"', '" 12 "', '"1_000"', '"+12"', '"-12"', '"12.0"', '"12.00"', '"12.0_0"', '"012"', '"-0"', '"-01"', '"\\n12\\t"', '"+ 1"', '"00"']),
    (INTEGER, ['"1.5"', '"1e3"', '"x"', '""', '" "', '"0x1"', '"_1"', '"1_"', '"1__0"', '"12."', '".0"', '"1 2"', '"--1"', '"+-1"', '"true"', '"١٢"', '"\\u00a012"']),
    (INTEGER, ['"12345678901234567890123"', '"+0012345678901234567890123.000"', '"-_1"', '"1_0.0"', '"1.0_"', '"0_0"', '"0_1"']),
    (NUMBER, ["3", "3.0", "-1.50", "1e3", "12345678901234567890", "true", "false", "null", "[]", "{}"]),
    (NUMBER, ['"1.5"', '" 1.5 "', '"1e3"', '"1E+3"', '"1_0.5"', '"+1.5"', '".5"', '"5."', '"-1.50"', '"007"', '"3"', '"-.5e-1"', '"12345678901234567890"']),
    (NUMBER, ['"x"', '""', '" "', '"0x1"', '"1__0"', '"_1"', '"1_"', '"1._5"', '"1_.5"', '"."', '"e5"', '"1e"', '"1,5"', '"--1"', '"true"', '"١"', '"1_e5"', '"1e_5"', '"1e5_0"']),
    (BOOLEAN, ["true", "false", "1", "0", "1.0", "0.0", "-0.0", "2", "-1", "1.5", "12345678901234567890123", "null", "[]", "{}", "1e0", "3.0"]),
    (BOOLEAN, ['"yes"', '"YES"', '"Yes"', '"y"', '"on"', '"t"', '"true"', '"True"', '"1"', '"no"', '"N"', '"off"', '"f"', '"false"', '"0"']),
    (BOOLEAN, ['"x"', '""', '" yes "', '"1.0"', '"2"', '"tRuE"', '"ＹＥＳ"']),
    (NULL, ["1", '"null"', "false", "[]"]),
    (LIST, ["[]", '[1,null,{"a":null}]', "{}", '"x"', '"[]"', "1", "null", "true"]),
    (OBJECT, ["{}", '{"a":null,"b":{"c":null}}', "[]", '"x"', '"{}"', "1", "null"]),
    (list_of(INTEGER), ['["1",2.0,3]', '["x",null,1]', "[[]]", '"1"', "{}", "null"]),
    (list_of(STRING), ['["a"]', '["a",5,null]', "[]"]),
    (list_of(list_of(NUMBER)), ['[["1"],[]]', "[[null],3]"]),
    (list_of(object_of("a", a=INTEGER)), ['[{"a":"1"},{}]', '[{"a":1},{"a":2.0}]', "[3]", "[[]]"]),
    (object_of("b", a=INTEGER | {"default": 5}, b=STRING), ["{}", '{"b":"x"}', '{"b":"x","a":"7"}', '{"a":"z"}', "[]", '"x"', "1", "null", '{"b":null}']),
    (object_of(a=object_of("c", b=STRING | {"default": "x"}, c=INTEGER)), ["{}", '{"a":{}}', '{"a":{"c":"1"}}', '{"a":null}', '{"a":[]}']),
    (object_of(a=LIST | {"default": []}, o=OBJECT | {"default": {"k": 1}}, n=NUMBER | {"default": 0}, s=STRING | {"default": ""}), ["{}", '{"a":[1]}']),
    (any_of(STRING, NULL), ['"x"', "5", "[]"]),
    (any_of(INTEGER, NULL), ['"12"', '"x"', "1.5"]),
    (any_of(NULL, NUMBER), ['"1.5"', "{}"]),
    (any_of(INTEGER, STRING), ["12", '"12"', '"x"', "1.0", "1.5", "true", "null", "[]"]),
    (any_of(STRING, INTEGER), ["12", '"12"', "1.0", "true", "null", "{}"]),
    (any_of(NUMBER, STRING), ["12", '"12"', "true", "null"]),
    (any_of(INTEGER, NUMBER), ["1", "1.0", "1.5", '"1"', '"1.5"', '"x"', "true"]),
    (any_of(NUMBER, INTEGER), ["1", "1.0", "1.5", '"1"', "true"]),
    (any_of(BOOLEAN, STRING), ["true", '"yes"', "1", "null"]),
    (any_of(BOOLEAN, INTEGER), ["true", "1", '"yes"', '"1"', "0", "2", "1.0", '"12"', '"x"']),
    (any_of(INTEGER, BOOLEAN), ["true", "1", '"yes"', '"1"', "1.0"]),
    (any_of(BOOLEAN, NUMBER), ["true", "1", "1.0", '"1"', '"on"']),
    (any_of(STRING, list_of(STRING)), ['"x"', '["x"]', "[5]", "5", "{}"]),
    (any_of(list_of(INTEGER), INTEGER), ['["1"]', '"1"', '["x"]', '"x"']),
    (any_of(list_of(INTEGER), list_of(STRING)), ['["1"]', '["x"]', "[1]", '["x",1]', "[]"]),
    (any_of(OBJECT, STRING), ['{"a":null}', '"x"', "5", "[]"]),
    (any_of(LIST, NULL), ["5", "[null]"]),
    (any_of(STRING, INTEGER, NULL), ["1.5", '"x"', "{}"]),
    (any_of(INTEGER, list_of(any_of(STRING, INTEGER, NULL))), ['["x",1,null]', "[1.5]", '"x"']),
    (any_of(object_of("a", a=STRING), object_of("b", b=INTEGER)), ['{"a":"x"}', '{"b":1}', '{"b":"1"}', "{}", '{"a":1}', "[]", '"x"']),
    (any_of(object_of(a=STRING), object_of(a=STRING, b=INTEGER)), ['{"a":"x"}', '{"a":"x","b":1}', '{"b":1}', "{}"]),
    (any_of(object_of(a=INTEGER), OBJECT), ['{"a":"1"}', '{"b":1}', '{"a":"x"}', "{}"]),
    (any_of(OBJECT, object_of(a=INTEGER)), ['{"a":"1"}', '{"b":1}']),
    (any_of(STRING, object_of("b", a=INTEGER | {"default": 5}, b=STRING)), ['{"b":"x"}', '{"b":5}', '"x"', "5"]),
    (any_of(object_of("a", a=list_of(INTEGER)), list_of(object_of("a", a=STRING))), ['{"a":["x"]}', '[{"a":5}]', "5"]),
    (any_of(any_of(INTEGER, NULL), list_of(BOOLEAN)), ["null", '"x"', '["x"]']),
    ({"type": ["string", "null"]}, ["5", '"x"']),
    ({"type": ["string", "integer"]}, ["1.5", "true", '"1"', "1"]),
    ({"type": ["integer", "boolean", "null"]}, ["1.5", "true", '"1"', '"x"']),
    ({"type": ["array", "string"], "items": INTEGER}, ['["1"]', "5", '["x"]', '"x"']),
]

# Whole bodies.
BODIES = [
    (object_of("a", a=STRING), ["", " ", "null", "{}", "[]", "[1]", '"x"', "1", "true", '{"a":"x"}', '{"b":"x"}', '{"a":5}', '{"a":"x","a":5}', '{"a":5,"a":"x"}', ' { "a" : "x" } ']),
    (object_of("b a", a=STRING, b=INTEGER), ["{}", '{"b":"x","a":5}', '{"a":5}', '{"b":1.5}']),
    (object_of(a=STRING), ["", "{}", "null", '{"a":"x"}', '{"a":null}']),
    (object_of(a=STRING | {"default": "d"}, n=INTEGER | {"default": None}, f=NUMBER | {"default": 1}), ["{}", '{"a":"x"}', '{"a":null}', '{"n":null}', '{"n":"3"}', '{"f":2}']),
    (object_of(a=any_of(STRING, NULL) | {"default": "d"}, b=any_of(STRING, NULL)), ["{}", '{"a":"x"}', '{"b":"x"}']),
    (object_of("a", a=STRING | {"default": "d"}), ["{}", '{"a":"x"}']),
    (object_of(a=INTEGER | {"default": "wrong"}, l=LIST | {"default": [1, {"b": None}]}, d=OBJECT | {"default": {"b": 1}}), ["{}", '{"a":1}']),
    (object_of(a=object_of("b", b=STRING)), ["{}", '{"a":{}}', '{"a":{"b":"x"}}', '{"a":null}']),
    (object_of("_a", _a=INTEGER, __b=STRING | {"default": "d"}), ['{"_a":"1"}', "{}", '{"_a":"x"}', '{"_a":1,"__b":5}']),
    (object_of("$top", **{"$top": INTEGER, "a-b": STRING, "日本": STRING}), ['{"$top":"1"}', '{"a-b":5,"日本":5,"$top":1}', '{"\\u0024top":"x"}']),
    (object_of("a b", a=STRING | {"enum": ["x", "y"]}, b=INTEGER | {"minimum": 5, "maximum": 9}), ['{"a":"z","b":1}', '{"a":"x","b":"7"}', '{"a":5,"b":"x"}']),
    ({"type": "object"}, ["", "null", "{}", "[]", "{"]),
    ({"type": "object", "properties": {}}, ["", "{}", "[1]"]),
    (
        object_of("a", a=STRING),
        ["{", "[", "{]", '{"a"', '{"a":', '{"a":}', '{"a":1', '{"a":1,', '{"a":1,}', '{"a" 1}', "{'a':1}", "{a:1}", "[1", "[1,", "[1,]", "[1 2]", "x", "nul", "tru", "-", "01", "1.", "1.e5", "+1", ".5", '"x', '"\\x"', '"\\u12"', '"\\u12G4"', '"\t"', "{} {}", "1 2", "{}x", "NaNx", '{"a":"é', "é", '{"é":x', '{"a":nope}', "[,]", "{,}", '{"a":1 "b":2}', '{"a":"x",\n"b"}', '\n\n{"a"\n1', "// x", '{"a":"\\', '{"a":"\\"}', '["a\nb"]', '{"a":1e}', '{"a":1.}', '{"a":-}', '{"a":"x"', "{1:2}", '{"a":"x"}]'],
    ),
]


class Server:
    """A server with one tool, which keeps the arguments that it gets."""

    def __init__(self, schema: dict) -> None:
        self.tool = types.Tool(name="t", inputSchema=schema)
        self.arguments = None

    async def initialize(self) -> types.InitializeResult:
        information = types.Implementation(name="s", version="1")
        return types.InitializeResult(protocolVersion="2025-06-18", capabilities=types.ServerCapabilities(), serverInfo=information)

    async def list_tools(self) -> types.ListToolsResult:
        return types.ListToolsResult(tools=[self.tool])

    async def call_tool(self, name: str, arguments: dict) -> types.CallToolResult:
        self.arguments = arguments
        return types.CallToolResult(content=[])


def measure(schema: dict, bodies: list[str]) -> None:
    server = Server(schema)
    app = FastAPI()
    app.state.session = server
    asyncio.run(create_dynamic_endpoints(app))
    client = TestClient(app, raise_server_exceptions=False)
    for body in bodies:
        server.arguments = None
        answer = client.post("/t", content=body.encode(), headers={"content-type": "application/json"})
        case = {"schema": schema, "body": body}
        match answer.status_code:
            case 200:
                case["arguments"] = server.arguments
            case 422:
                case["detail"] = answer.json()["detail"]
            case status:
                case["status"] = status
        print(json.dumps(case, ensure_ascii=False))


logging.disable()
for schema, values in VALUES:
    measure(object_of("it", it=schema), [f'{{"it":{value}}}' for value in values])
for schema, bodies in BODIES:
    measure(schema, bodies)
