//! What is typed behind `pontoon ipc`, read by hand: a client waits for the bridge to start.

use std::ffi::OsString;
use std::path::PathBuf;

use pontoon_schema::{Fault, Profile};
use pontoon_wire::heal::HealMode;

/// What the bridge is started with.
#[derive(Debug)]
pub(super) struct BridgeArguments {
    pub(super) socket: PathBuf,
    pub(super) schema: PathBuf,
    pub(super) showing: Showing,
}

/// For whom tools are shown, and what is done about what is wrong with them.
#[derive(Debug, Clone)]
pub(super) struct Showing {
    pub(super) profile: &'static Profile,
    default: HealMode,
    single: Vec<(&'static str, HealMode)>,
}

impl Default for Showing {
    fn default() -> Self {
        let (default, single) = (HealMode::default(), Vec::new());
        Self { profile: Profile::common(), default, single }
    }
}

impl Showing {
    /// What is done about this fault.
    pub(super) fn mode(&self, fault: Fault) -> HealMode {
        let single = self.single.iter().rev().find(|(code, _)| *code == fault.code());
        single.map_or(self.default, |(_, mode)| *mode)
    }

    /// Takes a word on healing: a mode for all, or `CODE=MODE` for one kind.
    fn heal(&mut self, word: &str) -> Result<(), String> {
        let (code, mode) = word.split_once('=').map_or((None, word), |(code, it)| (Some(code), it));
        let mode = match mode {
            "repair" => HealMode::Repair,
            "warn" => HealMode::Warn,
            "off" => HealMode::Off,
            _ => {
                return Err(
                    "`--heal` takes repair, warn or off, or CODE=MODE such as S004=off".to_owned()
                );
            }
        };
        let Some(code) = code else {
            self.default = mode;
            return Ok(());
        };
        let known = Fault::ALL.iter().map(|fault| fault.code()).find(|it| *it == code);
        let known = known.ok_or_else(|| {
            format!("`--heal` knows the codes of schemas, S001 to S034, and not `{code}`")
        })?;
        self.single.push((known, mode));
        Ok(())
    }
}

impl BridgeArguments {
    /// Reads the words after `ipc`.
    ///
    /// # Errors
    ///
    /// What is wrong with them, for people.
    pub(super) fn read(words: impl IntoIterator<Item = OsString>) -> Result<Self, String> {
        let (mut places, mut showing) = (Vec::new(), Showing::default());
        let mut words = words.into_iter();
        while let Some(word) = words.next() {
            if word == "--" {
                places.extend(words.by_ref().map(PathBuf::from));
                break;
            }
            let Some(option) = word.to_str().filter(|word| word.starts_with("--")) else {
                places.push(PathBuf::from(word));
                continue;
            };
            let (name, value) = match option.split_once('=') {
                Some((name, value)) => (name, Some(value.to_owned())),
                None => (option, None),
            };
            if !matches!(name, "--profile" | "--heal") {
                return Err(format!("there is no option `{name}`"));
            }
            let value = value.or_else(|| words.next()?.into_string().ok());
            let value = value.ok_or_else(|| format!("`{name}` needs a value"))?;
            match name {
                "--profile" => showing.profile = profile(&value)?,
                _ => showing.heal(&value)?,
            }
        }
        let count = places.len();
        let [socket, schema] = <[PathBuf; 2]>::try_from(places)
            .map_err(|_| format!("two arguments are needed, SOCKET and SCHEMA, not {count}"))?;
        Ok(Self { socket, schema, showing })
    }
}

fn profile(name: &str) -> Result<&'static Profile, String> {
    Profile::named(name).ok_or_else(|| {
        let names: Vec<_> = Profile::all().iter().map(|it| it.name.as_str()).collect();
        format!("there is no profile `{name}`; there are: {}", names.join(", "))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(words: &[&str]) -> Result<BridgeArguments, String> {
        BridgeArguments::read(words.iter().map(OsString::from))
    }

    /// These words are understood, and say this of the client, of `S003` and of `S004`.
    #[track_caller]
    fn check(words: &[&str], profile: &str, [map, root]: [HealMode; 2]) {
        let read = read(words).unwrap();
        assert_eq!((read.socket, read.schema), ("a.sock".into(), "b.json".into()));
        let showing = read.showing;
        let modes = [Fault::Map, Fault::RootUnion].map(|fault| showing.mode(fault));
        assert_eq!((showing.profile.name.as_str(), modes), (profile, [map, root]));
    }

    #[test]
    fn options_stand_anywhere_and_in_both_forms() {
        use HealMode::{Off, Repair, Warn};
        check(&["a.sock", "b.json"], "common", [Repair, Repair]);
        check(&["--profile", "gemini", "a.sock", "b.json"], "gemini", [Repair, Repair]);
        check(&["a.sock", "--profile=claude-code", "b.json"], "claude-code", [Repair, Repair]);
        check(&["--profile", "gemini", "--", "a.sock", "b.json"], "gemini", [Repair, Repair]);
        check(&["a.sock", "b.json", "--heal", "warn"], "common", [Warn, Warn]);
        check(&["a.sock", "b.json", "--heal=S004=off", "--heal", "warn"], "common", [Warn, Off]);
    }

    #[test]
    fn what_is_not_understood_is_said() {
        for (words, expected) in [
            (&["a.sock"][..], "two arguments are needed, SOCKET and SCHEMA, not 1"),
            (&["a", "b", "--profile"], "`--profile` needs a value"),
            (
                &["a", "b", "--profile", "nobody"],
                "there is no profile `nobody`; there are: none, common",
            ),
            (&["a", "b", "--heal", "on"], "`--heal` takes repair, warn or off"),
            (&["a", "b", "--heal", "H25=off"], "and not `H25`"),
            (&["a", "b", "--quiet"], "there is no option `--quiet`"),
        ] {
            let why = read(words).unwrap_err();
            assert!(why.contains(expected), "{words:?}: {why}");
        }
    }
}
