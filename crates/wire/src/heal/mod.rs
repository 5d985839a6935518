//! What servers get wrong, put right: every heal once, with its code and meaning.
//!
//! The codes are stable: logs, metrics and transcripts name them. Codes that are missing here belong
//! to violations this version does not repair yet.

pub mod lines;
pub mod messages;
pub(crate) mod results;

macro_rules! heals {
    ($($heal:ident $meaning:literal,)*) => {
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

            /// What the server did wrong.
            pub fn meaning(self) -> &'static str {
                match self { $(Self::$heal => $meaning,)* }
            }
        }
    };
}

heals! {
    H01 "log or banner text on stdout",
    H02 "JSON spread over several lines",
    H03 "several messages on one line, or no newline at the end",
    H04 "carriage return, byte order mark, NUL or spaces around a message",
    H08 "an answer to a notification",
    H09 "an id that came back with another type",
    H10 "an unknown, repeated or late answer",
    H11 "an error without the id of its request",
    H12 "progress with an unknown token, out of order or after the answer",
    H13 "`jsonrpc` missing or wrong",
    H14 "both or neither of `result` and `error`, or an error of the wrong form",
    H16 "explicit null for an optional member",
    H17 "a result of a tool without a list of content",
    H19 "a protocol version that was not negotiated",
    H20 "an error in answer to `notifications/initialized`",
    H21 "a second `initialize` kept from the server",
    H22 "a request to the client that nobody can answer",
    H27 "a server that does not exit when its input ends",
    H28 "a server that exits while it is still needed",
}

/// What to do with a violation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum HealMode {
    /// Nothing: what is broken is dropped.
    Off,
    /// Count and report it, and drop what is broken.
    Warn,
    /// Count, report and repair it.
    #[default]
    Repair,
}

/// How often each heal was needed.
#[derive(Debug, Clone, Default)]
pub struct Heals {
    counts: [u64; Heal::ALL.len()],
    fresh: Vec<Heal>,
}

impl Heals {
    /// Notes one more.
    pub fn note(&mut self, heal: Heal) {
        let count = &mut self.counts[heal as usize];
        *count += 1;
        if *count == 1 {
            self.fresh.push(heal);
        }
    }

    /// How often this one was needed.
    pub fn count(&self, heal: Heal) -> u64 {
        self.counts[heal as usize]
    }

    /// Takes the kinds seen for the first time since this was last asked, to log each once.
    pub fn take_fresh(&mut self) -> Vec<Heal> {
        std::mem::take(&mut self.fresh)
    }

    /// Whether nothing was healed.
    pub fn is_empty(&self) -> bool {
        self.counts.iter().all(|count| *count == 0)
    }

    /// Takes all counts, leaving none.
    pub fn take(&mut self) -> Vec<(Heal, u64)> {
        let counts = std::mem::replace(&mut self.counts, [0; Heal::ALL.len()]);
        self.fresh.clear();
        Heal::ALL
            .iter()
            .map(|heal| (*heal, counts[*heal as usize]))
            .filter(|(_, n)| *n > 0)
            .collect()
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
        assert_eq!(Heal::H28.code(), "H28");
    }
}
