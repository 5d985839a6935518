"""What differs between two answers, said by JSON pointers, and the written list of what may.

`python3 tests/interop/mcpo/differences.py` checks the examples in this file.
"""

import json
import pathlib
import re
import sys

# Of these objects the order of members is something that people see.
ORDERED = ("paths", "properties")


def differences(mcpo: object, pontoon: object, pointer: str = "") -> dict[str, dict]:
    """By pointer, what each of the two has there; what only one has is there under its name alone.

    >>> differences({"a": 1, "b": [1, 2]}, {"a": 1, "b": [1, 3]})
    {'/b/1': {'mcpo': 2, 'pontoon': 3}}
    >>> differences({"a": 1}, {"x/y~": 1})
    {'/a': {'mcpo': 1}, '/x~1y~0': {'pontoon': 1}}
    >>> differences([1], [1, 2])
    {'/1': {'pontoon': 2}}

    Numbers and truth values are told apart, also where Python does not.

    >>> differences([1, 1, 1], [1.0, True, 1])
    {'/0': {'mcpo': 1, 'pontoon': 1.0}, '/1': {'mcpo': 1, 'pontoon': True}}

    The order of members counts where somebody sees it.

    >>> differences({"paths": {"/a": 1, "/b": 1}, "x": {"a": 1, "b": 1}}, {"paths": {"/b": 1, "/a": 1}, "x": {"b": 1, "a": 1}})
    {'/paths#order': {'mcpo': ['/a', '/b'], 'pontoon': ['/b', '/a']}}
    """
    if isinstance(mcpo, dict) and isinstance(pontoon, dict):
        found = {}
        for key in [*mcpo, *(key for key in pontoon if key not in mcpo)]:
            at = f"{pointer}/{escape(key)}"
            if key not in pontoon:
                found[at] = {"mcpo": mcpo[key]}
            elif key not in mcpo:
                found[at] = {"pontoon": pontoon[key]}
            else:
                found |= differences(mcpo[key], pontoon[key], at)
        if pointer.rpartition("/")[2] in ORDERED:
            orders = [key for key in mcpo if key in pontoon], [key for key in pontoon if key in mcpo]
            if orders[0] != orders[1]:
                found[f"{pointer}#order"] = {"mcpo": orders[0], "pontoon": orders[1]}
        return found
    if isinstance(mcpo, list) and isinstance(pontoon, list):
        return differences(by_position(mcpo), by_position(pontoon), pointer)
    if type(mcpo) is type(pontoon) and mcpo == pontoon:
        return {}
    return {pointer: {"mcpo": mcpo, "pontoon": pontoon}}


def by_position(values: list) -> dict[str, object]:
    return {str(at): value for at, value in enumerate(values)}


def escape(key: str) -> str:
    return key.replace("~", "~0").replace("/", "~1")


def expanded(document: object) -> object:
    """An OpenAPI document with each model where it is used, and only the names of those that only others use.

    mcpo gives every object inside of an argument a model of its own, with a name and a title that it made up. They are compared: the
    titles where the models are used, and the names beside the models of whole requests and answers, which paths name.

    >>> inner = {"type": "object", "title": "f_it_model"}
    >>> form = {"properties": {"it": {"$ref": "#/components/schemas/f_it_model", "description": "x"}}}
    >>> paths = {"/f": {"$ref": "#/components/schemas/f"}}
    >>> found = expanded({"paths": paths, "components": {"schemas": {"f": form, "f_it_model": inner}}})["components"]
    >>> found["schemas"]
    {'f': {'properties': {'it': {'type': 'object', 'title': 'f_it_model', 'description': 'x'}}}}
    >>> found["schemas#inside"]
    ['f_it_model']
    """
    if not (isinstance(document, dict) and "paths" in document):
        return document
    schemas = document.get("components", {}).get("schemas", {})
    used = {name for name in schemas if f'"#/components/schemas/{name}"' in json.dumps(document["paths"])} | {"ValidationError"}
    # Deeper than any of them goes; a reference in circles stays as it is.
    expanded = {name: replace_references(schema, schemas, 20) for name, schema in schemas.items() if name in used}
    inside = {"schemas#inside": sorted(schemas.keys() - used)} if schemas.keys() - used else {}
    return document | ({"components": document["components"] | {"schemas": expanded} | inside} if schemas else {})


def replace_references(schema: object, schemas: dict, depth: int) -> object:
    if isinstance(schema, list):
        return [replace_references(it, schemas, depth) for it in schema]
    if not isinstance(schema, dict):
        return schema
    name = str(schema.get("$ref", "")).removeprefix("#/components/schemas/")
    if name in schemas and name != "ValidationError" and depth:
        return replace_references(schemas[name] | {key: value for key, value in schema.items() if key != "$ref"}, schemas, depth - 1)
    return {key: replace_references(value, schemas, depth) for key, value in schema.items()}


class Improvements:
    """The list: for each reason the differences that it explains, by case and pointer, each with both sides.

    >>> listed = Improvements([{"reason": "Kept.", "differences": {"GET /a": {"/x": {"pontoon": 1}, "/y": {"mcpo": 2}}}}])
    >>> listed.judge({"GET /a": {"/x": {"pontoon": 1}, "/z": {"mcpo": 3}}})
    >>> for complaint in listed.complaints: print(complaint)
    GET /a /z differs and is not listed: {"mcpo": 3}
    GET /a /y is listed and does not differ: {"mcpo": 2}

    A difference that is listed with other values is another difference.

    >>> Improvements([{"reason": "Kept.", "differences": {"GET /a": {"/x": {"pontoon": 1}}}}]).judged({"GET /a": {"/x": {"pontoon": 2}}})
    ['GET /a /x differs otherwise than listed: {"pontoon": 2}, not {"pontoon": 1}']
    """

    def __init__(self, groups: list[dict], header: str = "") -> None:
        # What stands above the list.
        self.header = header
        self.reasons: dict[tuple[str, str], str] = {}
        self.listed: dict[tuple[str, str], dict] = {}
        self.complaints: list[str] = []
        for group in groups:
            for case, pointers in group["differences"].items():
                for pointer, sides in pointers.items():
                    if (case, pointer) in self.listed:
                        self.complaints.append(f"{case} {pointer} is listed twice")
                    if not group["reason"] or group["reason"].startswith("?"):
                        self.complaints.append(f"{case} {pointer} has no reason")
                    self.listed[case, pointer] = sides
                    self.reasons[case, pointer] = group["reason"]

    @classmethod
    def read(cls, path: pathlib.Path) -> "Improvements":
        text = path.read_text() if path.exists() else "[]"
        return cls(json.loads(re.sub(r"(?m)^\s*//.*$", "", text)), text.partition("[\n")[0] if text.startswith("//") else "")

    def judge(self, found: dict[str, dict[str, dict]]) -> None:
        flat = {(case, pointer): sides for case, pointers in found.items() for pointer, sides in pointers.items()}
        for (case, pointer), sides in flat.items():
            listed = self.listed.get((case, pointer))
            if listed is None:
                self.complaints.append(f"{case} {pointer} differs and is not listed: {line(sides)}")
            elif differences(listed, sides):
                self.complaints.append(f"{case} {pointer} differs otherwise than listed: {line(sides)}, not {line(listed)}")
        for (case, pointer), sides in self.listed.items():
            if (case, pointer) not in flat:
                self.complaints.append(f"{case} {pointer} is listed and does not differ: {line(sides)}")

    def judged(self, found: dict[str, dict[str, dict]]) -> list[str]:
        self.judge(found)
        return self.complaints

    def written(self, found: dict[str, dict[str, dict]]) -> str:
        """The differences in the form of the list: those listed under their reasons, the others sorted by what they are like.

        >>> listed = Improvements([{"reason": "Kept.", "differences": {"GET /a": {"/x": {"pontoon": 1}, "/y": {"mcpo": 2}}}}])
        >>> print(listed.written({"GET /a": {"/x": {"pontoon": 3}, "/y": {"mcpo": 2}}}), end="")
        [
          {
            "reason": "Kept.",
            "differences": {
              "GET /a": {
                "/y": {"mcpo": 2}
              }
            }
          },
          {
            "reason": "? x: pontoon",
            "differences": {
              "GET /a": {
                "/x": {"pontoon": 3}
              }
            }
          }
        ]
        """
        groups: dict[str, dict[str, dict[str, dict]]] = {reason: {} for reason in dict.fromkeys(self.reasons.values())}
        for case, pointers in found.items():
            for pointer, sides in pointers.items():
                listed = self.listed.get((case, pointer))
                # What differs otherwise than it was judged has to be judged again.
                is_judged = listed is not None and not differences(listed, sides)
                reason = self.reasons[case, pointer] if is_judged else f"? {kind(pointer, sides)}"
                groups.setdefault(reason, {}).setdefault(case, {})[pointer] = sides
        return self.header + render({reason: cases for reason, cases in groups.items() if cases})


def kind(pointer: str, sides: dict) -> str:
    """What one difference has in common with others, so that a person judges them together."""
    last = re.sub(r"^\d+$", "N", pointer.rpartition("/")[2])
    return f"{last}: {' and '.join(sides)}"


def line(value: object) -> str:
    return json.dumps(value, ensure_ascii=False)


def render(groups: dict[str, dict[str, dict[str, dict]]]) -> str:
    blocks = []
    for reason, cases in groups.items():
        rows = []
        for case, pointers in cases.items():
            entries = ",\n".join(f"        {line(pointer)}: {line(sides)}" for pointer, sides in pointers.items())
            rows.append(f"      {line(case)}: {{\n{entries}\n      }}")
        blocks.append(f'  {{\n    "reason": {line(reason)},\n    "differences": {{\n' + ",\n".join(rows) + "\n    }\n  }")
    return "[\n" + ",\n".join(blocks) + "\n]\n"


if __name__ == "__main__":
    import doctest

    sys.exit(1 if doctest.testmod().failed else 0)
