"""An MCP server with a tool for each kind of schema and each kind of answer, for comparisons with mcpo.

    cases_server.py              the tools that mcpo can load
    cases_server.py NAME         one of those with which mcpo does not load a server at all (CRASHES)
    cases_server.py paged        two tools, each on a page of its own
    cases_server.py plain        one tool of no kind in particular
    cases_server.py called NAME TYPE    one tool of this name, whose argument `it` has this type
    cases_server.py telling      one tool, `tells`, of where its process works, which it is, and what its environment is
    cases_server.py prompting NAME…    prompts and resources, and tools of these names

It answers over stdio, raw, without an SDK. A tool of SCHEMAS gives back its arguments as JSON; one of ANSWERS gives
back what its name says. `dies` ends the server.
"""

import json
import os
import sys

PNG = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="


def one(schema, *, is_required=False):
    """Arguments with one property, `it`."""
    arguments = {"type": "object", "properties": {"it": schema}}
    return {**arguments, "required": ["it"]} if is_required else arguments


SCHEMAS = {
    "text": one({"type": "string", "description": "A text."}),
    "text_required": one({"type": "string"}, is_required=True),
    "integer": one({"type": "integer"}, is_required=True),
    "number": one({"type": "number"}, is_required=True),
    "boolean": one({"type": "boolean"}, is_required=True),
    "null_only": one({"type": "null"}),
    "enumeration": one({"type": "string", "enum": ["red", "green"]}, is_required=True),
    "constant": one({"type": "string", "const": "red"}),
    "ranged": one({"type": "integer", "minimum": 1, "maximum": 9}),
    "patterned": one({"type": "string", "pattern": "^a+$", "minLength": 2}),
    "formatted": one({"type": "string", "format": "date-time"}),
    "exampled": one({"type": "string", "examples": ["a"], "title": "My Own Title"}),
    "default_text": one({"type": "string", "default": "red"}),
    "default_null": one({"type": "string", "default": None}),
    "default_required": one({"type": "string", "default": "red"}, is_required=True),
    "optional_any_of": one({"anyOf": [{"type": "string"}, {"type": "null"}], "default": None, "title": "It"}),
    "required_any_of": one({"anyOf": [{"type": "string"}, {"type": "null"}]}, is_required=True),
    "any_of_two": one({"anyOf": [{"type": "integer"}, {"type": "string"}]}),
    "type_list": one({"type": ["string", "null"]}),
    "type_list_two": one({"type": ["string", "number"]}),
    "nullable_word": one({"type": "string", "nullable": True}),
    "one_of": one({"oneOf": [{"type": "string"}, {"type": "integer"}]}),
    "all_of": one({"allOf": [{"type": "object", "properties": {"a": {"type": "string"}}}, {"required": ["a"]}]}),
    "reference": {
        "type": "object",
        "properties": {"it": {"$ref": "#/$defs/Point", "description": "Beside."}},
        "$defs": {"Point": {"type": "object", "properties": {"x": {"type": "number"}}, "required": ["x"]}},
    },
    "nothing_said": one({"description": "Anything."}),
    "free_object": one({"type": "object"}),
    "typed_object": one({"type": "object", "additionalProperties": {"type": "integer"}}),
    "nested_object": one(
        {
            "type": "object",
            "properties": {
                "name": {"type": "string", "description": "Its name."},
                "inside": {"type": "object", "properties": {"deep_value": {"type": "integer"}}},
            },
            "required": ["name"],
        }
    ),
    "open_object": one({"type": "object", "properties": {"a": {"type": "string"}}, "additionalProperties": True}),
    "closed_object": one({"type": "object", "properties": {"a": {"type": "string"}}, "additionalProperties": False}),
    "list_of_text": one({"type": "array", "items": {"type": "string"}}),
    "list_of_objects": one(
        {"type": "array", "items": {"type": "object", "properties": {"a": {"type": "string"}}, "required": ["a"]}}
    ),
    "list_of_lists": one({"type": "array", "items": {"type": "array", "items": {"type": "integer"}}}),
    "list_of_anything": one({"type": "array"}),
    "tuple": one({"type": "array", "prefixItems": [{"type": "string"}, {"type": "integer"}]}),
    "underscore": {"type": "object", "properties": {"_it": {"type": "string"}, "it": {"type": "string"}}},
    "camelCase": {"type": "object", "properties": {"someThing": {"type": "string"}, "an_other": {"type": "string"}}},
    "with-dash": one({"type": "string"}),
    "with_dash": one({"type": "string"}),
    "dotted.name": one({"type": "string"}),
    "group/tool": one({"type": "string"}),
    "group_tool": one({"type": "integer"}),
    "größe": one({"type": "string"}),
    # Of both no letter is one that names of operations and models have.
    "読む": one({"type": "string"}),
    "書く": one({"type": "integer"}),
    "odd_names": {
        "type": "object",
        "properties": {
            "$top": {"type": "integer", "description": "How many."},
            "名前": {"type": "string"},
            "filter[x]": {"type": "string", "default": "all"},
            "with space": {"type": "string"},
            "a-b.c": {"type": "boolean"},
        },
        "required": ["$top"],
    },
    "odd_names_inside": one({"type": "object", "properties": {"$top": {"type": "integer"}, "名前": {"type": "string"}}, "required": ["名前"]}),
    "shadowing": {"type": "object", "properties": {"json": {"type": "string"}, "copy": {"type": "string"}, "class": {"type": "string"}}},
    "bare_object": {"type": "object"},
    "no_parameters": {"type": "object", "properties": {}},
    "open_root": {"type": "object", "additionalProperties": True},
    "open_and_named": {"type": "object", "properties": {"it": {"type": "string"}}, "additionalProperties": True},
    "closed_root": {"type": "object", "properties": {"it": {"type": "string"}}, "additionalProperties": False},
    "root_any_of": {
        "type": "object",
        "anyOf": [
            {"properties": {"a": {"type": "string"}}, "required": ["a"]},
            {"properties": {"b": {"type": "integer"}}, "required": ["b"]},
        ],
    },
    "several": {
        "type": "object",
        "properties": {
            "a": {"type": "string", "description": "First."},
            "b": {"type": "integer", "default": 7},
            "c": {"type": "boolean"},
        },
        "required": ["a"],
    },
}

CRASHES = {
    "old_reference": {
        "type": "object",
        "properties": {"it": {"$ref": "#/definitions/Point"}},
        "definitions": {"Point": {"type": "object", "properties": {"x": {"type": "number"}}}},
    },
    "property_reference": {
        "type": "object",
        "properties": {"a": {"type": "object", "properties": {"x": {"type": "number"}}}, "b": {"$ref": "#/properties/a"}},
    },
    "recursive": {
        "type": "object",
        "properties": {"tree": {"$ref": "#/$defs/Tree"}},
        "$defs": {
            "Tree": {
                "type": "object",
                "properties": {"value": {"type": "string"}, "children": {"type": "array", "items": {"$ref": "#/$defs/Tree"}}},
            }
        },
    },
    "yes_items": one({"type": "array", "items": True}),
    "yes_property": one(True),
    "model_name": {"type": "object", "properties": {"model_config": {"type": "string"}, "model_dump": {"type": "string"}}},
}

OUTPUT = {"type": "object", "properties": {"sum": {"type": "integer"}, "unit": {"type": "string"}}, "required": ["sum"]}


def text(text):
    return {"type": "text", "text": text}


ANSWERS = {
    "says_text": {"content": [text("plain words")]},
    "says_number": {"content": [text("42")]},
    "says_yes": {"content": [text("true")]},
    "says_null": {"content": [text("null")]},
    "says_object": {"content": [text('{"a": [1, 2.50, "x"]}')]},
    "says_nan": {"content": [text("[NaN, 1]")]},
    # The same of a tool that takes an argument, which mcpo answers in another way.
    "says_infinity": {"content": [text("[Infinity, -Infinity, NaN, 1]")]},
    "says_empty": {"content": [text("")]},
    "says_two": {"content": [text("one"), text("2")]},
    "says_nothing": {"content": []},
    "shows_image": {"content": [{"type": "image", "mimeType": "image/png", "data": PNG}]},
    "shows_image_and_text": {"content": [text("a dot"), {"type": "image", "mimeType": "image/png", "data": PNG}]},
    "plays_audio": {"content": [{"type": "audio", "mimeType": "audio/wav", "data": "UklGRg=="}]},
    "links": {"content": [{"type": "resource_link", "uri": "https://example.org/a.txt", "name": "a.txt"}]},
    "embeds_text": {"content": [{"type": "resource", "resource": {"uri": "mem:a", "mimeType": "text/plain", "text": "inside"}}]},
    "embeds_bytes": {
        "content": [{"type": "resource", "resource": {"uri": "mem:a.png", "mimeType": "image/png", "blob": PNG}}]
    },
    "only_structured": {"content": [], "structuredContent": {"sum": 3}},
    "fails": {"content": [text("boom")], "isError": True},
    "fails_silently": {"content": [], "isError": True},
    "sums": {"content": [text('{"sum": 3, "extra": null}')], "structuredContent": {"sum": 3, "extra": None}},
}

ERRORS = {
    "refuses_parse": -32700,
    "refuses_request": -32600,
    "refuses_method": -32601,
    "refuses_params": -32602,
    "refuses_inside": -32603,
    "refuses_own": -32001,
}


PAGED = ["on_the_first_page", "on_the_second_page"]


PROMPTS = [
    {"name": "group/prompt", "description": "Has a slash.", "arguments": [{"name": "$about", "required": True}, {"name": "名前"}]},
    {"name": "読む"},
    {"name": "fails"},
]
RESOURCES = [{"uri": "mem:two", "name": "two"}, {"uri": "mem:none", "name": "none"}]


PAGE = "<!doctype html><p>日本</p>"


def tools(name, *words):
    if name == "telling":
        return [{"name": "tells", "inputSchema": {"type": "object", "properties": {}}}]
    if name == "called":
        return [{"name": words[0], "inputSchema": one({"type": words[1]}, is_required=True)}]
    if name == "prompting":
        return [{"name": it, "inputSchema": one({"type": "string"})} for it in words]
    if name == "paints":
        return [{"name": "paints", "inputSchema": {"type": "object", "properties": {}}}]
    if name in ("plain", "gathers"):
        return [{"name": name, "inputSchema": one({"type": "string"}, is_required=True)}]
    if name:
        return [{"name": name, "description": "Gives back its arguments.", "inputSchema": CRASHES[name]}]
    empty = {"type": "object", "properties": {}}
    schemas = [{"name": it, "description": "Gives back its arguments.", "inputSchema": SCHEMAS[it]} for it in SCHEMAS]
    answers = [{"name": it, "inputSchema": empty} for it in [*ANSWERS, *ERRORS, "dies"]]
    for answer in answers:
        if answer["name"] in ("sums", "says_infinity"):
            answer["inputSchema"] = one({"type": "integer"})
        if answer["name"] == "sums":
            answer["outputSchema"] = OUTPUT
    return schemas + answers


def page(cursor):
    at = int(cursor or 0)
    tool = {"name": PAGED[at], "inputSchema": {"type": "object", "properties": {}}}
    return {"tools": [tool], **({"nextCursor": str(at + 1)} if at + 1 < len(PAGED) else {})}


def offered(method, params):
    """What is answered besides tools."""
    if method == "prompts/list":
        return {"result": {"prompts": PROMPTS}}
    if method == "resources/list":
        return {"result": {"resources": RESOURCES}}
    if method == "prompts/get" and params["name"] == "fails":
        return {"error": {"code": -32603, "message": "this prompt fails", "data": {"of": "fails"}}}
    if method == "prompts/get":
        said = json.dumps([params["name"], params.get("arguments")], ensure_ascii=False, sort_keys=True)
        return {"result": {"description": "Filled in.", "messages": [{"role": "user", "content": text(said)}]}}
    if method == "resources/read" and params["uri"] == "mem:two":
        first = {"uri": "mem:two/a", "mimeType": "application/json", "text": '{"a": 1}'}
        return {"result": {"contents": [first, {"uri": "mem:two/b", "mimeType": "image/png", "blob": PNG}]}}
    if method == "resources/read" and params["uri"] == "mem:none":
        return {"result": {"contents": []}}
    return {"error": {"code": -32602, "message": f"no such resource: {params.get('uri')}"}}


def answer(request, name=None, *words):
    method, params = request["method"], request.get("params", {})
    if method == "initialize":
        more = {"prompts": {}, "resources": {}} if name == "prompting" else {}
        return {
            "result": {
                "protocolVersion": params["protocolVersion"],
                "capabilities": {"tools": {}, **more},
                "serverInfo": {"name": "cases", "version": "1.2.3"},
            }
        }
    if method == "ping":
        return {"result": {}}
    if method == "tools/list":
        return {"result": page(params.get("cursor")) if name == "paged" else {"tools": tools(name, *words)}}
    if name == "prompting" and method.startswith(("prompts/", "resources/")):
        return offered(method, params)
    if method == "tools/call":
        tool = params["name"]
        if tool == "dies":
            sys.exit(3)
        if tool in ANSWERS:
            return {"result": ANSWERS[tool]}
        if tool == "paints":
            return {"result": {"content": [{"type": "resource", "resource": {"uri": "ui:page", "mimeType": "text/html", "text": PAGE}}]}}
        if tool == "tells":
            told = {"folder": os.getcwd(), "process": os.getpid(), "variables": dict(os.environ)}
            return {"result": {"content": [text(json.dumps(told))]}}
        if tool in ERRORS:
            return {"error": {"code": ERRORS[tool], "message": f"{tool} it is", "data": {"of": tool}}}
        return {"result": {"content": [text(json.dumps(params.get("arguments"), ensure_ascii=False, sort_keys=True))]}}
    return {"error": {"code": -32601, "message": "Method not found"}}


def main():
    # What `gathers` answers calls only once so many are there.
    wanted = int(sys.argv[2]) if sys.argv[1:2] == ["gathers"] else 1
    calls = []
    for line in sys.stdin:
        request = json.loads(line)
        if "id" not in request or "method" not in request:
            continue
        if request["method"] == "tools/call":
            calls.append(request)
            if len(calls) < wanted:
                continue
            ready, calls = calls, []
        else:
            ready = [request]
        for request in ready:
            print(json.dumps({"jsonrpc": "2.0", "id": request["id"], **answer(request, *sys.argv[1:])}, ensure_ascii=False), flush=True)


if __name__ == "__main__":
    main()
