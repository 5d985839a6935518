//! The known name that a misspelt one was meant to be.

use strsim::osa_distance;

/// That a name is unknown, and which known one it was meant to be.
pub(super) fn unknown<'a>(
    what: &str,
    name: &str,
    known: impl IntoIterator<Item = &'a str>,
) -> String {
    match nearest(name, known) {
        Some(meant) => format!("unknown {what} `{name}`, did you mean `{meant}`?"),
        None => format!("unknown {what} `{name}`"),
    }
}

/// The one of `known` that is most like `name`, if any is alike enough to be meant.
pub(crate) fn nearest<'a>(name: &str, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let (name, lower) = (name.to_lowercase(), str::to_lowercase);
    // A third of the letters may be wrong; short names still get one slip.
    let allowed = (name.chars().count() / 3).max(1);
    known
        .into_iter()
        .map(|known| (osa_distance(&name, &lower(known)), known))
        .filter(|&(distance, _)| distance <= allowed)
        .min_by_key(|&(distance, _)| distance)
        .map(|(_, known)| known)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(name: &str, meant: Option<&str>) {
        let known = ["command", "args", "env", "cwd", "idle_timeout", "timeout", "inherit_env"];
        assert_eq!(nearest(name, known), meant, "{name:?}");
    }

    #[test]
    fn a_slip_finds_its_name() {
        check("comand", Some("command"));
        check("comamnd", Some("command"));
        check("arg", Some("args"));
        check("nev", Some("env"));
        check("timeOut", Some("timeout"));
        check("idleTimeout", Some("idle_timeout"));
    }

    #[test]
    fn another_word_finds_none() {
        check("description", None);
        check("x", None);
        check("", None);
    }
}
