//! Whether text has colours: as people say it by their environment, else where it goes to a terminal that can show them.

use std::ffi::OsString;

/// Whether what goes to a terminal, or not to one, is to have colours. `NO_COLOR` weighs most, then `CLICOLOR_FORCE`.
pub fn is_wanted(is_terminal: bool, variable: impl Fn(&str) -> Option<OsString>) -> bool {
    let is_set = |name: &str| variable(name).is_some_and(|value| !value.is_empty());
    let is = |name: &str, value: &str| variable(name).is_some_and(|found| found == value);
    if is_set("NO_COLOR") {
        return false;
    }
    if is_set("CLICOLOR_FORCE") && !is("CLICOLOR_FORCE", "0") {
        return true;
    }
    is_terminal && !is("TERM", "dumb") && !is("CLICOLOR", "0")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_people_say_weighs_more_than_where_text_goes() {
        for (variables, at_terminal, in_pipe) in [
            (&[][..], true, false),
            (&[("TERM", "xterm")], true, false),
            (&[("TERM", "dumb")], false, false),
            (&[("CLICOLOR", "0")], false, false),
            (&[("NO_COLOR", "1")], false, false),
            (&[("NO_COLOR", "")], true, false),
            (&[("CLICOLOR_FORCE", "1")], true, true),
            (&[("CLICOLOR_FORCE", "1"), ("TERM", "dumb")], true, true),
            (&[("CLICOLOR_FORCE", "0")], true, false),
            (&[("CLICOLOR_FORCE", "1"), ("NO_COLOR", "1")], false, false),
        ] {
            let variable = |name: &str| {
                let found = variables.iter().find(|(known, _)| *known == name);
                found.map(|(_, value)| OsString::from(value))
            };
            assert_eq!(is_wanted(true, variable), at_terminal, "{variables:?}");
            assert_eq!(is_wanted(false, variable), in_pipe, "{variables:?}");
        }
    }
}
