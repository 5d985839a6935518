"""What schemathesis does not wait for, for `schemathesis_run.py`."""

import schemathesis

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
