//! How bad each heal is for clients without the bridge, what its author does about it, and what is done here.

use pontoon_schema::Severity;
use pontoon_wire::heal::Heal;

use super::aspect::Aspect;

/// What there is to say of a heal.
#[derive(Debug, Clone, Copy)]
pub struct HealWords {
    /// What it is about.
    pub aspect: Aspect,
    /// How bad it is for a client without the bridge.
    pub severity: Severity,
    /// How its author puts it right.
    pub fix: &'static str,
    /// What is done about it here.
    pub here: &'static str,
}

/// What there is to say of this one.
pub fn of(heal: Heal) -> HealWords {
    use Aspect::{Ending, Framing, Handshake, Requests};
    use Severity::{Error, Information, Warning};
    let (aspect, severity, fix, here) = match heal.code() {
        "H01" => (
            Framing,
            Warning,
            "Write log text to standard error: standard output is for messages alone. In Python `print(..., file=sys.stderr)`, in Node `console.error`.",
            "It goes to the log.",
        ),
        "H02" => (
            Framing,
            Error,
            "Write each message on one line: no indentation (`dump()` without a number, `JSON.stringify(x)`).",
            "The lines are joined.",
        ),
        "H03" => (
            Framing,
            Error,
            "End each message with one newline, and flush.",
            "The messages are taken apart.",
        ),
        "H04" => (
            Framing,
            Warning,
            "Write UTF-8 without a byte order mark, and `\\n` at the end of a message.",
            "What is around the message is taken off.",
        ),
        "H08" => (
            Requests,
            Warning,
            "Send nothing for a message without an `id`: `if (method.find(\"notifications/\") == 0) return nullptr;`, and where that is written, `if (response.empty())` send no frame (`std::string()`, not `\"\\\"\\\"\"`).",
            "The answer is dropped.",
        ),
        "H09" => (
            Requests,
            Error,
            "Give the `id` back as it came: a number stays that number, a text that text.",
            "It is matched all the same.",
        ),
        "H10" => (
            Requests,
            Warning,
            "Answer each request once, with its own `id`, and not after it was cancelled.",
            "Such an answer is dropped.",
        ),
        "H11" => (
            Requests,
            Error,
            "Put the `id` of the request into its error, as soon as it can be read.",
            "It goes to the one request it can be about.",
        ),
        "H12" => (
            Requests,
            Warning,
            "Tell progress with the token of the request, rising, and before its answer.",
            "It is put in order, or dropped.",
        ),
        "H13" => {
            (Framing, Error, "Write `\"jsonrpc\": \"2.0\"` into every message.", "It is put in.")
        }
        "H14" => (
            Requests,
            Error,
            "Answer with either `result` or `error`; an error is `{\"code\": -32000, \"message\": \"...\"}`.",
            "The answer gets the form that it can only have meant.",
        ),
        "H16" => (
            Framing,
            Error,
            "Leave out what is not there, in place of null: `nextCursor`, `_meta`, `annotations` and so on.",
            "The null is taken out.",
        ),
        "H17" => (
            Requests,
            Error,
            "Give results as `{\"content\": [{\"type\": \"text\", \"text\": \"...\"}]}`.",
            "What the tool said becomes a block of text.",
        ),
        "H19" => (
            Handshake,
            Warning,
            "Answer `initialize` with the version that the client asks for, if it is one you know, else with the newest you know: `req[\"params\"].value(\"protocolVersion\", \"2024-11-05\")` in place of a fixed text.",
            "A version is agreed with each side by itself.",
        ),
        "H20" => (
            Handshake,
            Warning,
            "Take `notifications/initialized` without an answer.",
            "The error is dropped.",
        ),
        "H21" => (
            Handshake,
            Information,
            "Nothing.",
            "A second `initialize` is answered without the server.",
        ),
        "H22" => (
            Requests,
            Warning,
            "Ask a client only what its capabilities offer.",
            "The question is refused.",
        ),
        "H27" => (
            Ending,
            Warning,
            "End when standard input ends: it is how clients say goodbye. `for line in sys.stdin`, `process.stdin.on('end', ...)`.",
            "SIGTERM, then SIGKILL, to it and all that it started.",
        ),
        "H28" => {
            (Ending, Warning, "Stay until standard input ends.", "The next call has a new process.")
        }
        // A kind that this version of the doctor has no words for.
        _ => (
            Framing,
            Warning,
            "Do as the protocol has it.",
            "It is put right where that is possible.",
        ),
    };
    HealWords { aspect, severity, fix, here }
}
