"""What is asked of both bridges: every tool of the cases with arguments that fit and that do not, and requests of all kinds besides.

A request is named by what it is, `POST /cases/text {"it": "a"}`, so that the list of improvements can be read.
"""

import json
import typing
import urllib.parse

import bridges
import cases_server

KEY = "an-api-key-of-these-tests"
OTHER_KEY = "another-api-key"


class Asked(typing.NamedTuple):
    """One request, and what it is called when its own words are not enough."""

    method: str
    path: str
    body: bytes | None = None
    headers: dict = {}
    note: str = ""

    def name(self) -> str:
        words = [self.method, self.path]
        if self.body is not None:
            text = self.body.decode(errors="backslashreplace")
            text = "".join(letter if letter.isprintable() else f"\\x{ord(letter):02x}" for letter in text)
            words.append(text if len(text) <= 100 else f"{text[:60]}… of {len(self.body)} bytes")
        return " ".join(words) + (f" ({self.note})" if self.note else "")


def post(path: str, body: object = None, **more) -> Asked:
    """A call, with the body as JSON."""
    return Asked("POST", path, json.dumps(body, ensure_ascii=False).encode(), {"Content-Type": "application/json"}, **more)


def raw(path: str, body: bytes | None, content_type: str | None = "application/json", note: str = "") -> Asked:
    return Asked("POST", path, body, {"Content-Type": content_type} if content_type else {}, note)


# For each tool with the one argument `it`: what fits, and what does not or only just.
VALUES = {
    "text": (["a", "", "桟橋", "null", " 1 "], [5, 1.5, True, ["a"], {"a": 1}]),
    "text_required": (["a"], [5, False]),
    "integer": ([5, -1, 0], ["12", " 12 ", "1.0", "x", 2.0, 2.5, 1e30, True, "true", [1], {}, "", 12345678901234567890123]),
    "number": ([1.5, 3, -0.0], ["1.5", "x", "1e3", "NaN", True, [1.5], "", 10**400]),
    "boolean": ([True, False], ["yes", "no", "on", "off", "t", "F", "1", "0", "TRUE", "maybe", 1, 0, 2, 1.0, 0.5, "", [True]]),
    "null_only": ([], ["x", 0]),
    "enumeration": (["red"], ["blue", 5]),
    "constant": (["red"], ["blue"]),
    "ranged": ([1, 9], [0, 10, "3"]),
    "patterned": (["aa"], ["b", "a"]),
    "formatted": (["2026-11-18T00:00:00Z"], ["yesterday"]),
    "exampled": (["a"], [1]),
    "default_text": (["blue"], [7]),
    "default_null": (["a"], [7]),
    "default_required": (["a"], []),
    "optional_any_of": (["a"], [5]),
    "required_any_of": (["a"], [5]),
    "any_of_two": ([1, "a", "1"], [True, 1.5, []]),
    "type_list": (["a"], [5]),
    "type_list_two": (["a", 1, 1.5], [True, []]),
    "nullable_word": (["a"], []),
    "one_of": (["a", 1], [True, []]),
    "all_of": ([{"a": "x"}], [{"a": 1}, {}, "x"]),
    "reference": ([{"x": 1}, {"x": 1.5, "y": 2}], [{}, {"x": "z"}, 5]),
    "nothing_said": ([1, "a", [1], {"a": None}], []),
    "free_object": ([{}, {"a": None, "b": [1, None]}], [[], "x", 1]),
    "typed_object": ([{"a": 1}], [{"a": "x"}, 1]),
    "nested_object": (
        [{"name": "n"}, {"name": "n", "inside": {"deep_value": 1}}, {"name": "n", "more": 1}],
        [{}, {"name": 1}, {"name": "n", "inside": None}, {"name": "n", "inside": {"deep_value": "x"}}, [], "x", '{"name": "n"}'],
    ),
    "open_object": ([{"a": "x"}, {"a": "x", "b": 1}], [{"a": 1}]),
    "closed_object": ([{"a": "x"}], [{"a": "x", "b": 1}]),
    "list_of_text": ([[], ["a", "b"]], [["a", 1], "a", {"0": "a"}, [None], '["a"]']),
    "list_of_objects": ([[{"a": "x"}]], [[{}], [{"a": "x"}, {"a": 1}], [1]]),
    "list_of_lists": ([[[1], []]], [[1], [["x"]]]),
    "list_of_anything": ([[1, "a", None, {}]], ["a"]),
    "tuple": ([["a", 1]], [[1, "a"], "x"]),
    "with-dash": (["a"], []),
    "with_dash": (["a"], []),
    "dotted.name": (["a"], []),
    "group/tool": (["a"], [1]),
    "group_tool": ([1], ["a"]),
    "größe": (["a"], []),
    "読む": (["a"], [1]),
    "書く": ([1], ["a"]),
    "odd_names_inside": ([{"$top": 1, "名前": "a"}, {"名前": "a", "more": 1}], [{"$top": 1}, {"$top": "x", "名前": 1}]),
}

# Whole bodies, for tools with other arguments than `it`.
BODIES = {
    "underscore": [{"_it": "a", "it": "b"}, {"it": "b"}, {"_it": 1}],
    "camelCase": [{"someThing": "a", "an_other": "b"}, {"some_thing": "a"}],
    "odd_names": [
        {"$top": 1},
        {"$top": "2", "名前": "桟橋", "filter[x]": "some", "with space": "b", "a-b.c": "yes"},
        {"名前": "a"},
        {"$top": 1, "名前": None, "filter[x]": None},
        {"$top": "x", "名前": 1, "filter[x]": 2, "with space": [], "a-b.c": "maybe"},
        {"$top": 1, "top": 2, "_top": 3, "filter_x_": "b"},
    ],
    "shadowing": [{"json": "a", "copy": "b", "class": "c"}],
    "no_parameters": [{}, {"a": 1}, [], None],
    "bare_object": [{}, {"a": 1}],
    "open_root": [{}, {"a": 1, "b": None}],
    "open_and_named": [{"it": "a"}, {"it": "a", "b": 1}, {"b": 1}, {"it": 1}],
    "closed_root": [{"it": "a"}, {"it": "a", "b": 1}],
    "root_any_of": [{"a": "x"}, {"b": 1}, {}, {"a": 1}],
    "several": [
        {"a": "x"},
        {"a": "x", "b": 1, "c": True},
        {"c": True, "b": 1, "a": "x"},
        {"b": "x", "c": "x"},
        {"a": None, "b": None},
        {},
    ],
}


def path_of(tool: str) -> str:
    return f"/cases/{urllib.parse.quote(tool)}"


def calls_of_cases() -> list[Asked]:
    asked = []
    for tool in cases_server.SCHEMAS:
        path = path_of(tool)
        if tool in BODIES:
            asked += [post(path, body) for body in BODIES[tool]]
            continue
        fits, others = VALUES[tool]
        bodies = [{"it": value} for value in [*fits, *others]] + [{}, {"it": None}]
        asked += [post(path, body) for body in bodies]
        if fits:
            asked.append(post(path, {"it": fits[0], "extra": 1}))
    asked += [post(path_of(tool), {}) for tool in [*cases_server.ANSWERS, *cases_server.ERRORS]]
    return asked


def odd_bodies() -> list[Asked]:
    text, required, empty = "/cases/text", "/cases/text_required", "/cases/no_parameters"
    bodies = [b"", b"{", b'{"it": }', b'{"it": "a"} x', b"nonsense", b'{"it": "a",}', b"{'it': 'a'}", b'{"it": "\x01"}', b'{"it": "a"']
    bodies += [b"[]", b"null", b'"x"', b"5", b"[{}]", b'{"it": NaN}', b'{"it": "a", "it": "b"}', b' {"it": "a"} ']
    asked = [raw(path, body, note="raw") for path in [required, empty] for body in bodies]
    asked += [raw(path, None, None, "no body") for path in [text, required, empty, "/cases/says_text"]]
    asked += [raw(path, None, note="a content type and no body") for path in [required, empty]]
    asked += [
        raw(required, b'{"it": "\xff"}', note="not UTF-8"),
        raw(required, b'\xef\xbb\xbf{"it": "a"}', note="byte order mark"),
        raw(required, '{"it": "a"}'.encode("utf-16"), note="UTF-16"),
        raw(required, b'{"it": "a"}', None, "no content type"),
        raw(required, b'{"it": "a"}', "text/plain", "text/plain"),
        raw(required, b'{"it": "a"}', "application/x-www-form-urlencoded", "form"),
        raw(required, b'{"it": "a"}', "application/json; charset=utf-8", "charset"),
        raw(required, b'{"it": "a"}', "application/vnd.api+json", "another JSON"),
        raw(required, b'{"it": "a"}', "APPLICATION/JSON", "loud JSON"),
        raw("/cases/nothing_said", b'{"it": 1.0}', note="a float that is whole"),
        raw("/cases/nothing_said", b'{"it": 12345678901234567890}', note="a large integer"),
        raw("/cases/nothing_said", b'{"it": ' + b"[" * 50 + b"]" * 50 + b"}", note="50 deep"),
        post(required, {"it": "x" * 100_000}),
    ]
    return asked


def paths() -> list[Asked]:
    asked = [
        Asked(method, path)
        for path in ["/cases/text", "/cases/text/", "/cases/no_parameters"]
        for method in ["GET", "HEAD", "PUT", "PATCH", "DELETE"]
    ]
    asked += [Asked(method, path) for path in ["/cases/openapi.json", "/openapi.json"] for method in ["HEAD", "POST", "DELETE"]]
    asked += [
        Asked("GET", path)
        for path in ["/cases", "/cases/", "/cases/nothing_of_this_name", "/nobody/openapi.json", "/nobody", "/half/openapi.json/", "/cases/text/x"]
    ]
    asked += [
        post("/cases/text/", {"it": "a"}),
        post("/cases/text/x", {}),
        post("/cases//text", {"it": "a"}),
        post("/cases/TEXT", {"it": "a"}),
        post("/cases/te%78t", {"it": "a"}),
        post("/cases/group%2Ftool", {"it": "a"}),
        post("/cases/group_tool/", {"it": 1}),
        post("/cases/text?it=b", {"it": "a"}),
        post("/cases/nothing_of_this_name", {}),
        post("/nobody/text", {}),
        post("/half/convert_time", {}),
        post("/broken/text", {}),
    ]
    return asked


def calls_of_others() -> list[Asked]:
    entities = [{"name": "Ada", "entityType": "person", "observations": ["writes"]}, {"name": "Ben", "entityType": "person", "observations": []}]
    book = {"path": "book.xlsx", "sheet": "First"}
    return [
        post("/time/get_current_time", {"timezone": "UTC"}),
        post("/time/get_current_time", {"timezone": "Nowhere/None"}),
        post("/time/get_current_time", {}),
        post("/time/get_current_time", {"timezone": 5}),
        post("/time/get_current_time", {"timezone": "UTC", "extra": 1}),
        post("/time/convert_time", {"source_timezone": "UTC", "time": "12:00", "target_timezone": "Asia/Tokyo"}),
        post("/time/convert_time", {"source_timezone": "UTC", "time": "25:00", "target_timezone": "Asia/Tokyo"}),
        post("/half/get_current_time", {"timezone": "UTC"}),
        post("/paged/on_the_first_page", {}),
        post("/paged/on_the_second_page", {}),
        post("/everything/echo", {"message": "桟橋"}),
        post("/everything/echo", {"message": 5}),
        post("/everything/echo", {}),
        post("/everything/get-sum", {"a": 1, "b": 2.5}),
        post("/everything/get-sum", {"a": "1", "b": "x"}),
        post("/everything/get-tiny-image", {}),
        post("/everything/get-annotated-message", {"messageType": "error"}),
        post("/everything/get-annotated-message", {"messageType": "error", "includeImage": True}),
        post("/everything/get-annotated-message", {"messageType": "nonsense"}),
        post("/everything/get-resource-links", {"count": 2}),
        post("/everything/get-resource-links", {}),
        post("/everything/get-resource-reference", {"resourceType": "Text", "resourceId": 1}),
        post("/everything/get-structured-content", {"location": "Chicago"}),
        post("/everything/get-structured-content", {"location": "Nowhere"}),
        post("/everything/trigger-long-running-operation", {"duration": 0.1, "steps": 2}),
        post("/everything/simulate-research-query", {"topic": "bridges"}),
        post("/memory/create_entities", {"entities": entities}),
        post("/memory/create_entities", {"entities": [{"name": "Ada"}]}),
        post("/memory/create_entities", {}),
        post("/memory/create_relations", {"relations": [{"from": "Ada", "to": "Ben", "relationType": "knows"}]}),
        post("/memory/add_observations", {"observations": [{"entityName": "Ben", "contents": ["reads"]}]}),
        post("/memory/add_observations", {"observations": [{"entityName": "Nobody", "contents": ["reads"]}]}),
        post("/memory/read_graph", {}),
        post("/memory/search_nodes", {"query": "reads"}),
        post("/memory/open_nodes", {"names": ["Ada"]}),
        post("/memory/delete_entities", {"entityNames": ["Ada", "Ben"]}),
        post("/memory/read_graph", {}, note="afterwards"),
        post("/excel/create_workbook", {"path": "book.xlsx", "sheets": ["First"]}),
        post("/excel/create_workbook", {"path": "book.xlsx"}, note="again"),
        post("/excel/write_range", {**book, "at": "A1", "rows": [["a", 1], ["b", 2.5]]}),
        post("/excel/read_range", book),
        post("/excel/describe_workbook", {"path": "book.xlsx"}),
        post("/excel/describe_sheet", book),
        post("/excel/find_cells", {"path": "book.xlsx", "query": "b"}),
        post("/excel/read_range", {"path": "book.xlsx", "sheet": "Nothing"}),
        post("/excel/read_range", {}),
    ]


def documents() -> list[Asked]:
    names = ["cases", "paged", "time", "half", "everything", "memory", "excel", "broken"]
    return [Asked("GET", "/openapi.json"), *(Asked("GET", f"/{name}/openapi.json") for name in names)]


def last() -> list[Asked]:
    """The server ends in the middle of a call. mcpo may need to be started again after that, all its servers with it."""
    return [post("/cases/dies", {})]


def only_of_pontoon() -> list[tuple[Asked, list[int]]]:
    """What mcpo answers in one way or another, or never, and the statuses that are right."""
    half_a_letter = [raw(path, b'{"it": "\\ud800"}') for path in ["/cases/text_required", "/cases/no_parameters"]]
    return [
        (post("/cases/text", {"it": "a"}, note="after its server died"), [200]),
        # mcpo cannot write it to its server, and no answer comes from that server any more.
        *((asked, [200, 400, 422]) for asked in half_a_letter),
        (post("/cases/text", {"it": "a"}, note="after half a letter"), [200]),
    ]


def open_to_all() -> list[Asked]:
    return [*documents(), *calls_of_cases(), *odd_bodies(), *paths(), *calls_of_others(), *last()]


def of_a_single_server(at: str) -> list[Asked]:
    """A server that a command line names has its tools at the root, and nothing else is there."""
    asked = [Asked("GET", f"{at}/openapi.json"), post(f"{at}/plain", {"it": "a"}), post(f"{at}/plain", {}), Asked("GET", f"{at}/plain")]
    return [*asked, post(f"{at}/other", {}), post(f"{at}/plain/", {"it": "a"})]


def elsewhere() -> list[Asked]:
    """Under the paths that `--path-prefix /tools --root-path /rp` make, and beside them."""
    asked = []
    for at in ["", "/tools", "/rp", "/rp/tools", "/tools/rp"]:
        asked += [Asked("GET", f"{at}/openapi.json"), Asked("GET", f"{at}/plain/openapi.json"), post(f"{at}/plain/plain", {"it": "a"})]
    return asked


PAGE, OTHER_PAGE = "https://chat.example.org", "https://other.example.org"


def by_pages(*pages: str) -> list[Asked]:
    """What the scripts of web pages ask, and browsers for them before."""
    plain = [
        Asked("GET", "/openapi.json"),
        Asked("GET", "/plain/openapi.json"),
        post("/plain/plain", {"it": "a"}),
        post("/plain/plain", {}),
        post("/plain/other", {}),
        Asked("GET", "/plain/plain"),
        Asked("GET", "/nobody/openapi.json"),
    ]
    asked = []
    for page in pages:
        asked += [it._replace(headers=it.headers | {"Origin": page}, note=f"from {page}") for it in plain]
        asked += [it._replace(headers=it.headers | {"Origin": page, "Cookie": "a=b"}, note=f"from {page} with a cookie") for it in plain[1:3]]
        for path in ["/plain/plain", "/plain/openapi.json", "/openapi.json", "/nobody/openapi.json"]:
            for method, headers in [("POST", "content-type, authorization"), ("GET", None), ("DELETE", "x-anything")]:
                wants = {"Origin": page, "Access-Control-Request-Method": method}
                wants |= {"Access-Control-Request-Headers": headers} if headers else {}
                asked.append(Asked("OPTIONS", path, None, wants, f"{method} from {page}"))
    return [*asked, Asked("OPTIONS", "/plain/plain"), Asked("OPTIONS", "/plain/plain", None, {"Origin": PAGE}, f"from {PAGE}")]


# "Ada:" and the key, or another one, as Basic has it.
AUTHORIZATIONS = {
    "no key": None,
    "the key": f"Bearer {KEY}",
    "another key": f"Bearer {OTHER_KEY}",
    "bearer in lower case": f"bearer {KEY}",
    "no word before the key": KEY,
    "an empty bearer": "Bearer ",
    "Basic with the key": "Basic QWRhOmFuLWFwaS1rZXktb2YtdGhlc2UtdGVzdHM=",
    "Basic with another key": "Basic QWRhOmFub3RoZXItYXBpLWtleQ==",
    "Basic that is no Base64": "Basic %%%",
    "Basic without a colon": "Basic QWRh",
    "Digest": 'Digest username="ada"',
}


def behind_a_key() -> list[Asked]:
    """Each kind of request with each kind of authorization."""
    call = post("/cases/text", {"it": "a"})
    requests = [call, call._replace(path="/cases/text/"), post("/cases/text_required", {}), post("/cases/no_parameters", {})]
    requests += [post("/cases/fails", {}), post("/cases/nothing_of_this_name", {}), raw("/cases/text_required", b"{")]
    requests += [Asked("GET", path) for path in ["/cases/text", "/openapi.json", "/plain/openapi.json", "/nobody/openapi.json"]]
    return [
        asked._replace(headers=asked.headers | ({"Authorization": value} if value else {}), note=note)
        for asked in requests
        for note, value in AUTHORIZATIONS.items()
    ]


assert set(VALUES) | set(BODIES) == set(cases_server.SCHEMAS), set(VALUES) ^ (set(cases_server.SCHEMAS) - set(BODIES))
assert set(bridges.servers("mcpo", bridges.HERE)) >= {asked.path.split("/")[1] for asked in documents()[1:]}
