//! What was meant by words that are no command line of ours: told below the error, and never done.

use std::process::ExitCode;

use clap::Error;
use clap::error::{ContextKind, ContextValue, ErrorKind};

use super::elsewhere::is_url;
use super::near_misses::called_here;
use super::terminal::tell;
use crate::config::{Environment, is_program_name};

/// Tells what is wrong with the words that were typed, or what they ask for, and what was meant if that is known.
pub(super) fn told(mut error: Error) -> ExitCode {
    if let Some(known) = unknown(&error).as_deref().and_then(called_here) {
        // What only looks like the word would be the wrong advice.
        error.remove(ContextKind::SuggestedSubcommand);
        drop(error.print());
        tell(&format!("hint: {known}"));
        return code(&error);
    }
    drop(error.print());
    let words: Option<Vec<String>> =
        std::env::args_os().map(|word| word.into_string().ok()).collect();
    let environment = Environment::of_process();
    let is_program = |word: &str| is_program_name(word, &environment);
    if let (Some(words), Some(unknown)) = (words, unknown(&error))
        && let Some(hint) = hint(&words, &unknown, is_program)
    {
        tell(&format!("hint: {hint}"));
    }
    code(&error)
}

fn code(error: &Error) -> ExitCode {
    u8::try_from(error.exit_code()).map_or(ExitCode::FAILURE, ExitCode::from)
}

/// The word that is not known, if that is what is wrong.
fn unknown(error: &Error) -> Option<String> {
    let kind = match error.kind() {
        ErrorKind::InvalidSubcommand => ContextKind::InvalidSubcommand,
        ErrorKind::UnknownArgument => ContextKind::InvalidArg,
        _ => return None,
    };
    match error.get(kind) {
        Some(ContextValue::String(word)) => Some(word.clone()),
        _ => None,
    }
}

/// What was meant by these words, of which one is not known.
fn hint(words: &[String], unknown: &str, is_program: impl Fn(&str) -> bool) -> Option<String> {
    let at = words.iter().position(|word| word == unknown)?;
    let (before, command) = words.split_at(at);
    if unknown.starts_with('-') {
        return None;
    }
    match before {
        [_] if is_url(unknown) => Some(format!(
            "`pontoon tools --url {unknown}` lists the tools there, `pontoon call --url {unknown} TOOL` calls one, and \
             `pontoon doctor {unknown}` examines it"
        )),
        [_] if is_program(unknown) => Some(format!(
            "a server is served by its command line behind `--`: {}",
            behind_dashes("serve", command)
        )),
        [_, serve, options @ ..] if serve == "serve" => {
            let options: String =
                options.iter().map(|word| format!(" {}", as_typed(word))).collect();
            Some(format!(
                "the command goes after `--`: {}",
                behind_dashes(&format!("serve{options}"), command)
            ))
        }
        _ => None,
    }
}

/// That an address stands where a server's name does.
pub(super) fn url_without_option(command: &str, word: &str) -> Option<String> {
    let rest = if command == "call" { " TOOL" } else { "" };
    is_url(word).then(|| {
        format!("{word:?} is no name of a server: write pontoon {command} --url {word}{rest}")
    })
}

/// A command of ours with a command line behind it, as it is to be typed.
pub(super) fn behind_dashes(ours: &str, words: &[String]) -> String {
    let words: Vec<_> = words.iter().map(|word| as_typed(word)).collect();
    format!("pontoon {ours} -- {}", words.join(" "))
}

/// A word as a shell reads it.
fn as_typed(word: &str) -> String {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "-_./:=@,+%".contains(c);
    match !word.is_empty() && word.chars().all(is_plain) {
        true => word.to_owned(),
        false => format!("'{}'", word.replace('\'', r"'\''")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(typed: &[&str], unknown: &str, expected: Option<&str>) {
        let words: Vec<_> = typed.iter().map(|&word| word.to_owned()).collect();
        let hint = hint(&words, unknown, |word| matches!(word, "uvx" | "./server"));
        match expected {
            Some(says) => {
                let hint = hint.unwrap_or_default();
                assert!(hint.contains(says), "{typed:?}: {hint:?}");
            }
            None => assert_eq!(hint, None, "{typed:?}"),
        }
    }

    #[test]
    fn a_command_without_its_dashes_is_told_with_them() {
        let whole = Some("pontoon serve -- uvx mcp-server-time");
        check(&["pontoon", "serve", "uvx", "mcp-server-time"], "uvx", whole);
        check(&["pontoon", "uvx", "mcp-server-time"], "uvx", whole);
        let words = ["pontoon", "serve", "--port", "90", "sh", "-c", "a b"];
        check(&words, "sh", Some("pontoon serve --port 90 -- sh -c 'a b'"));
        check(&["pontoon", "./server"], "./server", Some("pontoon serve -- ./server"));
    }

    #[test]
    fn an_address_in_place_of_a_command_is_told_what_can_be_done_with_it() {
        check(
            &["pontoon", "http://a/mcp/x"],
            "http://a/mcp/x",
            Some("pontoon tools --url http://a/mcp/x"),
        );
        let told = url_without_option("call", "ws://a").unwrap();
        assert!(told.contains("pontoon call --url ws://a TOOL"), "{told}");
        assert_eq!(url_without_option("call", "demo"), None);
    }

    #[test]
    fn of_other_words_nothing_is_guessed() {
        check(&["pontoon", "srve"], "srve", None);
        check(&["pontoon", "serve", "--prot"], "--prot", None);
        check(&["pontoon", "gc", "x"], "x", None);
    }
}
