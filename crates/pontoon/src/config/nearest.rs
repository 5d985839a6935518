//! The known name that a misspelt one was meant to be.

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
fn nearest<'a>(name: &str, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    // A third of the letters may be wrong; short names still get one slip.
    let allowed = (name.chars().count() / 3).max(1);
    known
        .into_iter()
        .map(|known| (distance(name, known), known))
        .filter(|&(distance, _)| distance <= allowed)
        .min_by_key(|&(distance, _)| distance)
        .map(|(_, known)| known)
}

/// How many letters to add, drop, change or swap with their neighbour, capitals aside.
fn distance(from: &str, to: &str) -> usize {
    let [from, to] = [from, to].map(|text| text.to_lowercase().chars().collect::<Vec<_>>());
    let mut before_last: Vec<usize> = Vec::new();
    let mut last: Vec<usize> = (0..=to.len()).collect();
    for i in 1..=from.len() {
        let mut row = vec![i];
        for j in 1..=to.len() {
            let change = last[j - 1] + usize::from(from[i - 1] != to[j - 1]);
            let mut best = change.min(last[j] + 1).min(row[j - 1] + 1);
            let swapped = i > 1 && j > 1 && from[i - 1] == to[j - 2] && from[i - 2] == to[j - 1];
            if swapped {
                best = best.min(before_last[j - 2] + 1);
            }
            row.push(best);
        }
        before_last = std::mem::replace(&mut last, row);
    }
    last[to.len()]
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
