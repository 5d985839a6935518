//! What is done about each fault of a server: of the protocol (H01, ...) and in the schemas of its tools (S001, ...).

use std::collections::BTreeMap;

use pontoon_schema::Fault;
use pontoon_wire::heal::{Heal, HealMode, HealModes};

use super::document::{DocumentNode, DocumentReader};
use super::nearest::unknown;
use super::remarks::Weight;

/// What is done about the faults of one server: one thing for all, or another for some.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Healing {
    default: HealMode,
    protocol: HealModes,
    schemas: BTreeMap<&'static str, HealMode>,
}

impl Healing {
    /// What is done where no code says otherwise.
    pub fn default_mode(&self) -> HealMode {
        self.default
    }

    /// What is done about violations of the protocol.
    pub fn protocol(&self) -> HealModes {
        self.protocol
    }

    /// What is done about faults of this code in the schema of a tool, such as `S003`.
    pub fn schema(&self, code: &str) -> HealMode {
        self.schemas.get(code).copied().unwrap_or(self.default)
    }

    /// Whether any fault in the schema of a tool is repaired.
    pub fn repairs_schemas(&self) -> bool {
        let modes = self.schemas.values().chain([&self.default]);
        modes.into_iter().any(|mode| *mode == HealMode::Repair)
    }

    /// Reads a word for all, or an object with a word for each code.
    pub(super) fn read(node: &DocumentNode<'_>, reader: &mut DocumentReader<'_>) -> Self {
        if !node.is_object() {
            return reader.word(node, &WORDS).unwrap_or_default().into();
        }
        let members = reader.members(node).unwrap_or_default();
        let default = members.iter().find(|member| member.name == DEFAULT);
        let default = default.and_then(|member| reader.word(&member.node, &WORDS));
        let mut healing = Self::from(default.unwrap_or_default());
        for member in members.iter().filter(|member| member.name != DEFAULT) {
            match Code::named(&member.name) {
                Ok(code) => {
                    let mode = reader.word(&member.node, &WORDS);
                    healing = mode.map_or(healing.clone(), |mode| healing.with(code, mode));
                }
                Err(why) => reader.about_name(Weight::Mistake, member, &why),
            }
        }
        healing
    }

    /// What is typed on a command line: words for all, such as `off`, and for single codes, such as `H25=off`.
    ///
    /// # Errors
    ///
    /// Why a word says nothing.
    pub fn typed<'w>(words: impl IntoIterator<Item = &'w str>) -> Result<Self, String> {
        let (mut healing, mut single) = (Self::default(), Vec::new());
        for word in words {
            let (code, mode) = word.split_once('=').unwrap_or((DEFAULT, word));
            let mode = WORDS.iter().find(|(it, _)| *it == mode).map(|(_, mode)| *mode);
            let mode = mode.ok_or("write repair, warn or off, or CODE=MODE such as H25=off")?;
            match code {
                DEFAULT => healing = mode.into(),
                code => single.push((Code::named(code)?, mode)),
            }
        }
        Ok(single.into_iter().fold(healing, |healing, (code, mode)| healing.with(code, mode)))
    }

    fn with(mut self, code: Code, mode: HealMode) -> Self {
        match code {
            Code::Protocol(heal) => self.protocol = self.protocol.with(heal, mode),
            Code::Schema(code) => drop(self.schemas.insert(code, mode)),
        }
        self
    }
}

/// What a code stands for.
#[derive(Clone, Copy)]
enum Code {
    Protocol(Heal),
    Schema(&'static str),
}

impl Code {
    /// What this code stands for, or which one was meant.
    fn named(name: &str) -> Result<Self, String> {
        let schema = Fault::ALL.iter().map(|fault| fault.code()).find(|it| *it == name);
        let known = Heal::named(name).map(Self::Protocol).or(schema.map(Self::Schema));
        known.ok_or_else(|| match name.split_once('/') {
            Some((code, _)) if Self::named(code).is_ok() => {
                format!("unknown code `{name}`: write `{code}`, without what is behind the slash")
            }
            _ => unknown("code", name, codes_like(name)),
        })
    }
}

/// All codes, first those of the same kind as this one.
fn codes_like(name: &str) -> impl Iterator<Item = &'static str> {
    let heals = Heal::ALL.iter().map(|heal| heal.code());
    let mut codes: Vec<_> =
        heals.chain(Fault::ALL.iter().map(|fault| fault.code())).chain([DEFAULT]).collect();
    let kind = name.chars().next().map(|letter| letter.to_ascii_uppercase());
    codes.sort_by_key(|code| code.chars().next() != kind);
    codes.into_iter()
}

/// The member that says what is done about all others.
const DEFAULT: &str = "default";

const WORDS: [(&str, HealMode); 3] =
    [("off", HealMode::Off), ("warn", HealMode::Warn), ("repair", HealMode::Repair)];

/// The same for all.
impl From<HealMode> for Healing {
    fn from(mode: HealMode) -> Self {
        Self { default: mode, protocol: mode.into(), schemas: BTreeMap::new() }
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::servers;
    use super::*;

    /// What a server with this `heal` does, and what is said about it.
    fn read(heal: &str) -> (Healing, Vec<String>) {
        let text =
            format!(r#"{{"mcpServers": {{"a": {{"command": "/bin/true", "heal": {heal}}}}}}}"#);
        let (servers, remarks) = servers(&text);
        let healing = servers.first().map(|server| server.heal.clone()).unwrap_or_default();
        (healing, remarks.lines())
    }

    #[test]
    fn one_word_is_for_all() {
        let (healing, remarks) = read("\"warn\"");
        assert_eq!(remarks, Vec::<String>::new());
        assert_eq!(healing, HealMode::Warn.into());
        assert_eq!(healing.protocol().of(Heal::H25), HealMode::Warn);
        assert_eq!(healing.schema("S003"), HealMode::Warn);
    }

    #[test]
    fn each_code_has_its_own_word_wherever_the_default_stands() {
        let (healing, remarks) =
            read(r#"{"H25": "off", "S003": "repair", "default": "warn", "H05": "repair"}"#);
        assert_eq!(remarks, Vec::<String>::new());
        let of = |heal| healing.protocol().of(heal);
        assert_eq!(
            [Heal::H25, Heal::H05, Heal::H01].map(of),
            [HealMode::Off, HealMode::Repair, HealMode::Warn]
        );
        assert_eq!(
            [healing.schema("S003"), healing.schema("S004")],
            [HealMode::Repair, HealMode::Warn]
        );
        assert_eq!(healing.default_mode(), HealMode::Warn);
        assert_eq!(read("{}").0, HealMode::Repair.into());
    }

    #[test]
    fn an_unknown_code_is_a_mistake_and_the_nearest_is_named() {
        for (heal, expected) in [
            (r#"{"h25": "off"}"#, "unknown code `h25`, did you mean `H25`?"),
            (
                r#"{"S003/map": "off"}"#,
                "unknown code `S003/map`: write `S003`, without what is behind the slash",
            ),
            (r#"{"S03": "off"}"#, "unknown code `S03`, did you mean `S003`?"),
            (r#"{"defualt": "off"}"#, "unknown code `defualt`, did you mean `default`?"),
            (r#"{"banners": "off"}"#, "unknown code `banners`"),
            (r#"{"H01": "no"}"#, "expected \"off\" or \"warn\" or \"repair\", found \"no\""),
        ] {
            let remarks = read(heal).1;
            let [remark] = &remarks[..] else { panic!("{heal}: {remarks:?}") };
            assert!(remark.starts_with("Mistake: mcpServers.a.heal"), "{remark}");
            assert!(remark.ends_with(expected), "{remark}");
        }
    }

    #[test]
    fn words_of_a_command_line_say_the_same() {
        let typed = Healing::typed(["H25=off", "warn", "S003=repair"]).unwrap();
        let (written, _) = read(r#"{"H25": "off", "S003": "repair", "default": "warn"}"#);
        assert_eq!(typed, written);
        assert_eq!(Healing::typed([]).unwrap(), Healing::default());
        assert_eq!(
            Healing::typed(["H3l=off"]).unwrap_err(),
            "unknown code `H3l`, did you mean `H30`?"
        );
        assert!(Healing::typed(["on"]).unwrap_err().contains("H25=off"));
    }
}
