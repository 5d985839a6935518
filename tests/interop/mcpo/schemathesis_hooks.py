"""What schemathesis does not wait for, and which answers are declared, for `schemathesis_run.py`.

An answer that one of its checks would not take is declared here, as narrowly as can be, and why: EXCEPTIONS. Each that was needed is written to
the file that `PONTOON_EXCEPTIONS` names, so that one that is no longer needed is found.
"""

import os
import pathlib
import re

import jsonschema_rs
import schemathesis
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi.checks import negative_data_rejection, status_code_conformance

# By tool, how long it may be told to wait, and by which argument.
WAITS = {"/slow_echo": ("seconds", 300), "/count": ("delay_ms", 10_000)}


@schemathesis.hook
def before_call(context, case, kwargs):
    """Waiting that the document allows becomes none; what it does not allow stays, and has to be refused."""
    name, most = WAITS.get(case.path, (None, 0))
    if name and isinstance(case.body, dict):
        value = case.body.get(name, 1)
        if isinstance(value, (int, float)) and not isinstance(value, bool) and 0 <= value <= most:
            case.body = case.body | {name: 0}


def form_of(case) -> dict | None:
    """The schema of what the tool takes, if it takes anything."""
    models = case.operation.schema.raw_schema["components"]["schemas"]
    return models.get(f"{case.path.removeprefix('/')}_form_model")


def message_of(response) -> str:
    detail = response.json()["detail"]
    return detail["message"] if isinstance(detail, dict) else str(detail)


def cannot_ask(case, response) -> bool:
    """Its user is asked, and nobody is there: the tool fails, and that is 500, as with mcpo."""
    return case.path == "/ask_name" and response.status_code == 500 and "cannot ask its user" in message_of(response)


def has_unknown_member(case, response) -> bool:
    """mcpo drops members of a request that its tool does not know, and so does the bridge where the schema forbids them: a model that adds one
    gets its answer. All else about the request fits."""
    if response.status_code != 200 or not isinstance(case.body, dict) or form_of(case) is None:
        return False
    return [error.kind.name for error in errors_of(case)] == ["additionalProperties"]


def is_no_text(case, response) -> bool:
    """A body that is no UTF-8 is 400, as with mcpo, whose documents say nothing of that."""
    try:
        body = response.request.body or b""
        (body if isinstance(body, bytes) else body.encode()).decode()
    except UnicodeDecodeError:
        return response.status_code == 400 and message_of(response) == "There was an error parsing the body"
    return False


def is_converted(case, response) -> bool:
    """mcpo makes a number of a yes or no and of the text of a number where one is wanted, and so does the bridge. All else about the request
    fits."""
    if response.status_code != 200 or not isinstance(case.body, dict) or form_of(case) is None:
        return False
    is_same = all(type(value) is type(case.body[name]) for name, value in converted(case).items())
    return not is_same and errors_of(case) == []


def converted(case) -> dict:
    """The body of the request with the numbers that mcpo makes of it."""
    return {name: as_number(value) if wants_number(case, name) else value for name, value in case.body.items()}


def wants_number(case, name: str) -> bool:
    return form_of(case)["properties"].get(name, {}).get("type") == "integer"


def as_number(value):
    is_number = isinstance(value, bool) or (isinstance(value, str) and re.fullmatch(r"\s*[+-]?[0-9]+(\.0*)?\s*", value))
    return int(float(value)) if is_number else value


def errors_of(case) -> list:
    return list(jsonschema_rs.Draft202012Validator(form_of(case)).iter_errors(converted(case)))


# By check, what it does not have to take.
EXCEPTIONS = {
    not_a_server_error: [cannot_ask],
    status_code_conformance: [cannot_ask, is_no_text],
    negative_data_rejection: [has_unknown_member, is_converted, cannot_ask],
}


def is_declared(check, case, response) -> bool:
    for exception in EXCEPTIONS[check]:
        if exception(case, response):
            with pathlib.Path(os.environ["PONTOON_EXCEPTIONS"]).open("a") as file:
                file.write(f"{exception.__name__}\n")
            return True
    return False


@schemathesis.check
def no_server_error(ctx, response, case):
    return is_declared(not_a_server_error, case, response) or not_a_server_error(ctx, response, case)


@schemathesis.check
def documented_status(ctx, response, case):
    return is_declared(status_code_conformance, case, response) or status_code_conformance(ctx, response, case)


@schemathesis.check
def refused_if_unfitting(ctx, response, case):
    return is_declared(negative_data_rejection, case, response) or negative_data_rejection(ctx, response, case)
