//! Faults that are neither of one message nor of one schema: how a server starts, answers and stays alive.
//!
//! Codes are stable: reports and rules of CI name them.

use pontoon_schema::Severity;

use super::aspect::Aspect;

macro_rules! signs {
    ($($sign:ident $code:ident $aspect:ident $severity:ident {
        $meaning:literal
        minds: $minds:literal
        fix: $fix:literal
        here: $here:literal
    })*) => {
        /// A fault that an examination shows.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        pub enum Sign { $(#[doc = $meaning] $sign,)* }

        impl Sign {
            /// Every sign, by its code.
            pub const ALL: &'static [Sign] = &[$(Sign::$sign,)*];

            /// Its code, such as `D03`.
            pub fn code(self) -> &'static str {
                match self { $(Self::$sign => stringify!($code),)* }
            }

            /// What it is about.
            pub fn aspect(self) -> Aspect {
                match self { $(Self::$sign => Aspect::$aspect,)* }
            }

            /// How bad it is.
            pub fn severity(self) -> Severity {
                match self { $(Self::$sign => Severity::$severity,)* }
            }

            /// What is wrong.
            pub fn meaning(self) -> &'static str {
                match self { $(Self::$sign => $meaning,)* }
            }

            /// Who minds it.
            pub fn minds(self) -> &'static str {
                match self { $(Self::$sign => $minds,)* }
            }

            /// How its author puts it right.
            pub fn fix(self) -> &'static str {
                match self { $(Self::$sign => $fix,)* }
            }

            /// What Pontoon does about it.
            pub fn here(self) -> &'static str {
                match self { $(Self::$sign => $here,)* }
            }
        }
    };
}

signs! {
    SlowStart D01 Start Warning {
        "it takes long to start"
        minds: "Clients that give up on a start: Claude Code after 30 s, the TypeScript SDKs after 60 s. People wait for the rest."
        fix: "Load what is heavy with the first call that needs it, and install ahead what `uvx` or `npx` would fetch at each start."
        here: "`warm` keeps processes ready, and `\"mode\": \"stateful\"` starts one for a whole chat."
    }
    Died D02 Requests Error {
        "it ended, or hung up, while it was examined"
        minds: "All clients: what was open fails, and so does all that follows."
        fix: "Answer what is not understood with an error, and go on."
        here: "The call that was open fails with what the process said last; the next one has a new process."
    }
    Hangs D03 Requests Error {
        "it stopped answering"
        minds: "All clients: calls end with their time-out, if they have one."
        fix: "Answer every request, and let no request wait for another."
        here: "A call that is not answered ends with its time-out, and a process that answers no ping is replaced."
    }
    NoPing D04 Requests Warning {
        "`ping` is not answered with a result"
        minds: "Clients that ping to see whether a server is there."
        fix: "Answer `ping` with `{}`: clients take silence for a dead connection."
        here: "Clients' pings are answered by Pontoon itself."
    }
    UnknownMethod D05 Requests Warning {
        "a method that it does not know is not answered with an error"
        minds: "Clients that ask for more than the capabilities name: they wait, or take the answer for one."
        fix: "Answer with the error -32601 (method not found): clients ask for what a server may have."
        here: "Clients hear what is in the capabilities of the server, and ask for nothing else."
    }
    UnknownTool D06 Requests Warning {
        "a call of a tool that does not exist is not answered with an error"
        minds: "Models, which take a call for done that was not made."
        fix: "Answer with the error -32602, or with a result that has `\"isError\": true`, so that a model can see its mistake."
        here: "Calls are passed on as they are."
    }
    MixedAnswers D07 Requests Error {
        "answers to requests that came at the same time are mixed up, or missing"
        minds: "All clients that call more than one tool at once: an answer goes to another call, or to none."
        fix: "Give each answer the `id` of its own request, and write each message whole: one lock around the output."
        here: "Each call of a stateless server has a process for itself; `\"max_in_flight\": 1` makes calls wait for their turn elsewhere."
    }
    TooLong D08 Requests Warning {
        "it does not survive a long message"
        minds: "Clients that pass on what is long, such as files."
        fix: "Read messages to their end, whatever their length, and answer one that is too long with an error."
        here: "`MCPO_MAX_MESSAGE` bounds what is passed on; an application that breaks off is told how long a message was."
    }
    Unnamed D09 Handshake Error {
        "it has tools, and does not name them in its capabilities"
        minds: "Claude Code and clients on the TypeScript SDK 2, which show no tools."
        fix: "Name `\"tools\": {}` in the `capabilities` of the answer to `initialize`: clients such as Claude Code ask for nothing else."
        here: "They are asked for, and shown, all the same (H23)."
    }
    LeftBehind D10 Ending Warning {
        "it ends and leaves processes behind"
        minds: "The machine: what is left keeps its memory and its ports."
        fix: "End what was started before ending: wait for it, or kill its process group."
        here: "All that a process started is ended with it."
    }
    NoTools D11 Lists Information {
        "it lists no tools"
        minds: "No client, if there are prompts or resources."
        fix: "Nothing, if it has only resources or prompts. Otherwise look at its log: a tool that failed to load is missing without a word."
        here: "Nothing."
    }
    NoHandshake D12 Handshake Error {
        "it speaks MCP in no version that clients know"
        minds: "All clients: none of its tools is there."
        fix: "Answer `initialize` with a `protocolVersion`, `capabilities` and `serverInfo`."
        here: "The server cannot be used."
    }
    ListFails D13 Lists Error {
        "a list that its capabilities promise cannot be had"
        minds: "All clients, if it is the list of tools: none is there. Others are missing where a client shows them."
        fix: "Answer the list with a result, empty if there is nothing in it, or do not name the capability."
        here: "The list is taken for empty."
    }
    BadResult D14 Requests Warning {
        "a harmless call of a tool fails"
        minds: "Models, which have an error in place of a result."
        fix: "Look at what it answered; a tool that only reads should work without arguments it does not require."
        here: "Calls are passed on as they are."
    }
    ModernPart D15 Handshake Warning {
        "it knows `server/discover` and does not work in that era"
        minds: "Clients of protocol 2026-07-28 that do not turn back to the handshake."
        fix: "Answer the lists and calls of protocol 2026-07-28 without a handshake, or refuse `server/discover`."
        here: "Clients of that era are served by the other one, translated."
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_are_counted_through() {
        let codes: Vec<_> = Sign::ALL.iter().map(|sign| sign.code()).collect();
        let expected: Vec<_> = (1..=codes.len()).map(|n| format!("D{n:02}")).collect();
        assert_eq!(codes, expected);
    }
}
