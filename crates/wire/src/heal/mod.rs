//! What servers get wrong, put right: every violation once, with its code, what it means, how its author puts it right,
//! what is done about it here, and which clients mind.
//!
//! The codes are stable: logs, metrics, transcripts and configurations name them.

pub(crate) mod envelope;
pub mod failures;
pub mod lines;
pub(crate) mod messages;
mod modes;
pub(crate) mod nulls;
pub(crate) mod results;
pub mod structured;
mod text;

pub use modes::{HealMode, HealModes};

macro_rules! heals {
    ($($heal:ident {
        $meaning:literal
        fix: $fix:literal
        here: $here:literal
        minds: $minds:literal
    })*) => {
        /// A kind of violation that the bridge repairs.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        #[non_exhaustive]
        pub enum Heal { $(#[doc = $meaning] $heal,)* }

        impl Heal {
            /// Every heal.
            pub const ALL: &'static [Heal] = &[$(Heal::$heal,)*];

            /// Its code, such as `H01`.
            pub fn code(self) -> &'static str {
                match self { $(Self::$heal => stringify!($heal),)* }
            }

            /// What the server does wrong.
            pub fn meaning(self) -> &'static str {
                match self { $(Self::$heal => $meaning,)* }
            }

            /// How its author puts it right.
            pub fn fix(self) -> &'static str {
                match self { $(Self::$heal => $fix,)* }
            }

            /// What is done about it here.
            pub fn here(self) -> &'static str {
                match self { $(Self::$heal => $here,)* }
            }

            /// Which clients mind, and what they do.
            pub fn minds(self) -> &'static str {
                match self { $(Self::$heal => $minds,)* }
            }
        }
    };
}

heals! {
    H01 {
        "log or banner text on stdout"
        fix: "Write logs to stderr: `console.error` in Node, `logging` or `print(..., file=sys.stderr)` in Python. Switch off the banners of what you run (`npm --silent`, `uv --quiet`)."
        here: "It goes to the log and is never taken for an answer; a whole message behind log text on one line is found."
        minds: "Every client over stdio: the TypeScript SDK reports a parse error for each line, the Python SDK hands an exception to the session, others close the connection."
    }
    H02 {
        "JSON spread over several lines"
        fix: "Write each message on one line: `JSON.stringify(message)` and `json.dumps(message)` without indentation."
        here: "Lines are joined until the value is whole."
        minds: "Every client over stdio: each line is taken for a message of its own, and none can be read."
    }
    H03 {
        "several messages on one line, or no newline at the end"
        fix: "Write a newline after each message, the last one too."
        here: "The messages are told apart; the last one counts when the server ends."
        minds: "Every client over stdio: the line cannot be read as JSON, and an answer without its newline is waited for until the time-out."
    }
    H04 {
        "carriage return, byte order mark, NUL or spaces around a message"
        fix: "Write UTF-8 without a byte order mark, with `\\n` alone at the end of a line (binary mode on Windows)."
        here: "They are taken off."
        minds: "Clients with strict parsers: the Go and Python SDKs have refused such lines."
    }
    H05 {
        "`Content-Length` frames instead of lines, as the Language Server Protocol has them"
        fix: "Write and read one message a line: that is the stdio transport of MCP."
        here: "Frames are read from the first one that the server writes, and written to it from then on. A server that says nothing before it was written to in frames is found when it is learnt, once it left `initialize` unanswered; `framing` says so from the start."
        minds: "Every client over stdio: client and server wait for each other until the time-out."
    }
    H06 {
        "text that is not UTF-8, or half of a surrogate pair"
        fix: "Write UTF-8: `PYTHONUTF8=1` or `sys.stdout.reconfigure(encoding=\"utf-8\")` in Python, `Console.OutputEncoding` in .NET. Cut texts between characters, not between UTF-16 units."
        here: "Python servers are told to use UTF-8 (`PYTHONUTF8`, `PYTHONIOENCODING`); what is still unreadable becomes the replacement character."
        minds: "Clients on the Python SDK cannot read the message; others show another letter."
    }
    H07 {
        "stdout that is only written when a buffer is full or the server ends"
        fix: "Flush stdout after each message: `python -u` or `flush=True`, `setvbuf(stdout, NULL, _IOLBF, 0)` in C, `$| = 1` in Perl."
        here: "Python servers are told not to buffer (`PYTHONUNBUFFERED`). For others it is noted how many messages came only when the server ended."
        minds: "Every client over stdio: the server seems to hang."
    }
    H08 {
        "an answer to a notification"
        fix: "Send nothing at all for a message without an `id`. In C++: `if (method.find(\"notifications/\") == 0) return nullptr;`, and where that is written, `if (response.empty())` send no frame (`std::string()`, not `\"\\\"\\\"\"`)."
        here: "It is dropped. An error that can only be about the one open request is that request's answer (H11)."
        minds: "The TypeScript SDK refuses a null `id` as no message at all; Claude Code has closed the connection over it."
    }
    H09 {
        "an id that came back with another type"
        fix: "Keep the `id` as the JSON value that came, a number as a number and a text as a text."
        here: "It is matched by its number, and the client hears its own id."
        minds: "Clients that compare ids as they are written: the answer belongs to no request, which times out. SDKs take a number as a text, and the Python SDK no `1.0` for `1`."
    }
    H10 {
        "an unknown, repeated or late answer"
        fix: "Answer each request once, under its own `id`, and not after it was cancelled."
        here: "It is dropped."
        minds: "Clients on the TypeScript SDK report an unknown message id; Claude Code has closed the connection over it."
    }
    H11 {
        "an error without the id of its request"
        fix: "Read the `id` before anything else of a request, and give it back with every error."
        here: "It answers the one request that it can be about; where it could be several, it explains the time-out."
        minds: "Every client: the request is waited for until the time-out."
    }
    H12 {
        "progress with an unknown token, out of order or after the answer"
        fix: "Report progress only with the `progressToken` of the request, of the type it came with, with growing numbers, and before the answer."
        here: "Tokens are matched by their number, and progress that is the text of a number is the number; what belongs to no open request, and what goes back, is dropped."
        minds: "Claude Code and other clients on the TypeScript SDK report an unknown token; some close the connection."
    }
    H13 {
        "`jsonrpc` missing or wrong"
        fix: "Write `\"jsonrpc\": \"2.0\"` into every message."
        here: "It is put in."
        minds: "Clients on the TypeScript and Python SDKs refuse the message."
    }
    H14 {
        "both or neither of `result` and `error`, or an error of the wrong form"
        fix: "Write exactly one of `result` and `error`; an error is an object with an integer `code` and a `message`."
        here: "An error that is not null comes before a result, a text becomes an error with the code -32000, and an answer with neither is an error that says so."
        minds: "Clients on the TypeScript and Python SDKs refuse the message, and the request times out."
    }
    H15 {
        "several messages in one array"
        fix: "Write each message by itself: batches left the protocol with 2025-06-18."
        here: "The array is taken apart."
        minds: "Every client of a revision without batches refuses the array."
    }
    H16 {
        "explicit null for an optional member"
        fix: "Leave out what you do not have (`exclude_none=True` in pydantic, `omitempty` in Go, `JsonIgnoreCondition.WhenWritingNull` in .NET)."
        here: "The member is taken out where the protocol knows it, never inside data of the user."
        minds: "Clients on the TypeScript SDK refuse the whole result or list."
    }
    H17 {
        "a result of a tool without a list of content"
        fix: "Give back `{\"content\": [{\"type\": \"text\", \"text\": ...}]}`."
        here: "What the tool said becomes a text. A block without a `type` gets the one that its members can mean, and is told as a text where that is not clear."
        minds: "Clients on the TypeScript and Python SDKs refuse the result; others show an empty one."
    }
    H18 {
        "a tool with an `outputSchema` whose result has no `structuredContent`, or another than it promises"
        fix: "Give back `structuredContent` with every result that is no error, or leave out `outputSchema`."
        here: "A text that is JSON and fits the schema is taken as `structuredContent`; content that does not fit is given the promised types where its meaning stays. If nothing fits, the result goes out as it is, and the tool is listed without its `outputSchema` from then on."
        minds: "The TypeScript SDK fails the call with -32600, the Python SDK with a RuntimeError, although the tool did its work."
    }
    H19 {
        "a protocol version that was not negotiated"
        fix: "Answer `initialize` with the version that the client asks for, if it is one you know, else with the newest you know. In C++: `req[\"params\"].value(\"protocolVersion\", \"2024-11-05\")` in place of a fixed text."
        here: "A refusal is asked again with a version that it names; each side speaks its own."
        minds: "Clients on the SDKs refuse a version that they do not know, and give up on an error."
    }
    H20 {
        "an error in answer to `notifications/initialized`"
        fix: "Take `notifications/initialized`, and all notifications that you do not know, without a word."
        here: "It is dropped, and the server is used."
        minds: "The TypeScript SDK refuses a null `id`; some clients take it for a failed handshake."
    }
    H21 {
        "an `initialize` that is refused because there was one before"
        fix: "Keep what `initialize` says for each connection, not for the process."
        here: "The bridge shakes hands once with each process, and answers its clients itself. A server that says it is initialised already is used, and asked for what it has (H23)."
        minds: "Every client that comes back: \"already initialized\", until the server is restarted."
    }
    H22 {
        "a request to the client that nobody can answer"
        fix: "Ask only what the client's capabilities promise, and only while a call of it is open."
        here: "The server hears an error; ids of the server's own are kept apart from those of clients."
        minds: "Clients without the capability: they answer with an error or not at all, and the tool hangs."
    }
    H23 {
        "capabilities that do not name what the server has"
        fix: "Name `tools`, `prompts` and `resources` in the answer to `initialize` if there are any."
        here: "Lists are asked for once although the capabilities do not name them, and what answers is named."
        minds: "Clients that go by the capabilities, such as those on the TypeScript SDK 2: the server seems to have nothing. The TypeScript SDK 1 and the Python SDKs ask for the tools all the same."
    }
    H24 {
        "no answer to `ping`, `logging/setLevel` or a list that clients ask for as a matter of course"
        fix: "Answer `ping` and `logging/setLevel` with `{}`, and a list that is empty with an empty list."
        here: "The bridge answers in its place."
        minds: "Clients that ask whatever the capabilities say: an error in the log at each start, and some give up on a server that knows no `ping`."
    }
    H25 {
        "a failure of a tool told as an error of the protocol"
        fix: "Give back a result with `\"isError\": true` and say in its content what went wrong, wrong arguments included."
        here: "The error becomes such a result, with the error itself in its `_meta`. Unknown tools, requests that could not be read and errors with a meaning of their own stay what they are."
        minds: "Clients that do not show errors of the protocol to the model: it cannot see what it did wrong."
    }
    H26 {
        "a message that is too long or too deep, or in which a member stands twice"
        fix: "Give back less, or a link to it; write each member once."
        here: "It is dropped, and its request hears why: longer than `MCPO_MAX_MESSAGE`, deeper than 128 levels, or with a member twice that the bridge reads, for neither can be trusted. Members that the bridge does not read pass as they are, twice or not."
        minds: "Clients run out of memory or stack; of a member that stands twice some take the first and some the last."
    }
    H27 {
        "a server that does not exit when its input ends"
        fix: "End the process when stdin ends, and on SIGTERM."
        here: "It is asked by SIGTERM and then killed, with everything it started."
        minds: "Every client that starts servers: processes are left behind."
    }
    H28 {
        "a server that exits while it is still needed"
        fix: "Answer a request that fails with an error, and go on reading."
        here: "It is started anew for the next call; the calls that it left are answered."
        minds: "Clients that do not start it again: all its tools are gone until the next restart."
    }
    H29 {
        "an HTTP server that strays from the transport: a body for a notification, JSON as text, a lost session"
        fix: "Answer a notification with 202 and no body, JSON with `application/json`, and a session that is gone with 404."
        here: "It is taken as it was meant, and a session that is gone is opened anew once."
        minds: "Clients on the SDKs refuse the content type, or fail every call after a restart of the server."
    }
    H30 {
        "members of its own in the envelope of a message"
        fix: "Put what the protocol does not know into `_meta` of the result or of the parameters."
        here: "They are moved to `_meta`; from an error they are taken out."
        minds: "Clients on the TypeScript SDK, whose schema of a message is strict, refuse it."
    }
}

impl Heal {
    /// The heal with this code.
    pub fn named(code: &str) -> Option<Self> {
        Self::ALL.iter().copied().find(|heal| heal.code() == code)
    }

    /// Whether there is nothing to choose: what is done about it is done in every mode, which only says whether it is
    /// counted.
    pub fn is_always_dealt_with(self) -> bool {
        matches!(
            self,
            Self::H08 | Self::H10 | Self::H20 | Self::H22 | Self::H26 | Self::H27 | Self::H28
        )
    }

    /// Whether what the server said may be lost by it, so that it can explain why an answer did not come.
    pub fn can_cost_an_answer(self) -> bool {
        matches!(
            self,
            Self::H01
                | Self::H02
                | Self::H03
                | Self::H05
                | Self::H06
                | Self::H07
                | Self::H09
                | Self::H10
                | Self::H11
                | Self::H15
                | Self::H26
        )
    }
}

/// How often each heal was needed, and what is to be done about each.
#[derive(Debug, Clone, Default)]
pub struct Heals {
    modes: HealModes,
    counts: [u64; Heal::ALL.len()],
    fresh: Vec<Heal>,
    is_touched: bool,
}

impl Heals {
    /// None yet.
    pub fn new(modes: impl Into<HealModes>) -> Self {
        Self { modes: modes.into(), ..Self::default() }
    }

    /// Notes one more, and says whether to repair it. One that is off is not counted.
    pub fn found(&mut self, heal: Heal) -> bool {
        let mode = self.modes.of(heal);
        if mode != HealMode::Off {
            self.add(heal, 1);
        }
        mode == HealMode::Repair
    }

    /// Notes one more that is dealt with in one way only, unless it is off.
    pub fn note(&mut self, heal: Heal) {
        self.found(heal);
    }

    /// Whether this one is to be repaired; nothing is noted.
    pub fn repairs(&self, heal: Heal) -> bool {
        self.modes.of(heal) == HealMode::Repair
    }

    /// What is done about this one.
    pub fn mode(&self, heal: Heal) -> HealMode {
        self.modes.of(heal)
    }

    /// Adds so many that others have noted.
    pub fn add(&mut self, heal: Heal, times: u64) {
        let count = &mut self.counts[heal as usize];
        if *count == 0 && times > 0 {
            self.fresh.push(heal);
        }
        *count += times;
        self.is_touched |= times > 0;
    }

    /// How often this one was needed.
    pub fn count(&self, heal: Heal) -> u64 {
        self.counts[heal as usize]
    }

    /// Takes the kinds seen for the first time since this was last asked, to log each once.
    pub fn take_fresh(&mut self) -> Vec<Heal> {
        std::mem::take(&mut self.fresh)
    }

    /// Whether nothing was noted.
    pub fn is_empty(&self) -> bool {
        !self.is_touched
    }

    /// Takes all counts, leaving none.
    pub fn take(&mut self) -> Vec<(Heal, u64)> {
        let counts = std::mem::replace(&mut self.counts, [0; Heal::ALL.len()]);
        self.fresh.clear();
        self.is_touched = false;
        Heal::ALL
            .iter()
            .map(|heal| (*heal, counts[*heal as usize]))
            .filter(|(_, n)| *n > 0)
            .collect()
    }

    /// What may have cost an answer, in words such as `H01: log or banner text on stdout, 12 times`; empty if nothing
    /// may.
    pub fn explanation(&self) -> String {
        let costly = Heal::ALL.iter().filter(|heal| heal.can_cost_an_answer());
        let told = costly.filter_map(|heal| match self.count(*heal) {
            0 => None,
            1 => Some(format!("{}: {}", heal.code(), heal.meaning())),
            times => Some(format!("{}: {}, {times} times", heal.code(), heal.meaning())),
        });
        told.collect::<Vec<_>>().join("; ")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_kind_is_fresh_once() {
        let mut heals = Heals::default();
        heals.note(Heal::H02);
        heals.note(Heal::H02);
        heals.note(Heal::H01);
        assert_eq!(heals.take_fresh(), [Heal::H02, Heal::H01]);
        heals.note(Heal::H02);
        assert_eq!(heals.take_fresh(), []);
        assert_eq!(heals.take(), [(Heal::H01, 1), (Heal::H02, 3)]);
        assert!(heals.is_empty());
    }

    #[test]
    fn the_table_has_every_code_once_and_in_order() {
        let codes: Vec<_> = Heal::ALL.iter().map(|heal| heal.code()).collect();
        let expected: Vec<_> = (1..=30).map(|number| format!("H{number:02}")).collect();
        assert_eq!(codes, expected);
        assert_eq!(Heal::named("H28"), Some(Heal::H28));
        assert_eq!(Heal::named("h28"), None);
    }

    #[test]
    fn every_row_of_the_table_says_all_of_it() {
        for heal in Heal::ALL {
            for sentence in [heal.fix(), heal.here(), heal.minds()] {
                assert!(sentence.ends_with('.'), "{heal:?}: {sentence}");
            }
            let meaning = heal.meaning();
            assert!(!meaning.is_empty() && !meaning.ends_with('.'), "{heal:?}: {meaning}");
        }
    }

    #[test]
    fn a_violation_is_repaired_counted_or_neither_as_its_mode_says() {
        let modes = HealModes::from(HealMode::Repair)
            .with(Heal::H25, HealMode::Off)
            .with(Heal::H05, HealMode::Warn);
        let mut heals = Heals::new(modes);
        assert_eq!(
            [Heal::H01, Heal::H05, Heal::H25].map(|it| heals.found(it)),
            [true, false, false]
        );
        assert_eq!(heals.take(), [(Heal::H01, 1), (Heal::H05, 1)]);
    }

    #[test]
    fn what_may_have_cost_an_answer_is_told() {
        let mut heals = Heals::default();
        heals.note(Heal::H13);
        assert_eq!(heals.explanation(), "");
        heals.add(Heal::H01, 12);
        heals.note(Heal::H26);
        let expected = "H01: log or banner text on stdout, 12 times; \
                        H26: a message that is too long or too deep, or in which a member stands twice";
        assert_eq!(heals.explanation(), expected);
    }
}
