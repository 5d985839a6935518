//! `${env:NAME}` in arguments and environment values, so that secrets stay out of the file.

/// What became of a text with placeholders.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Resolved {
    /// The text; a placeholder that could not be resolved is left as written.
    pub(super) text: String,
    /// Why placeholders could not be resolved. Values are never told, only names.
    pub(super) mistakes: Vec<String>,
    /// What looks like a placeholder and is passed on as written.
    pub(super) warnings: Vec<String>,
}

/// `text` with each `${env:NAME}` replaced by what `variable` gives for the name.
pub(super) fn resolve<'a>(text: &str, variable: impl Fn(&str) -> Option<&'a str>) -> Resolved {
    let mut resolved = Resolved { text: String::new(), mistakes: vec![], warnings: vec![] };
    let mut rest = text;
    while let Some(start) = rest.find("${") {
        let Some(length) = rest[start..].find('}') else { break };
        let (written, inner) = (&rest[start..=start + length], &rest[start + 2..start + length]);
        resolved.text.push_str(&rest[..start]);
        rest = &rest[start + length + 1..];
        match inner.strip_prefix("env:") {
            Some(name) => match variable(name) {
                Some(value) => {
                    resolved.text.push_str(value);
                    continue;
                }
                None => resolved.mistakes.push(format!(
                    "the variable `{name}` of {written} is not set, or is not UTF-8 text"
                )),
            },
            None if is_planned(inner) => resolved
                .mistakes
                .push(format!("the placeholder {written} is not supported by this version")),
            None if is_name(inner) => resolved.warnings.push(format!(
                "{written} is passed on as written; for a variable write ${{env:NAME}}"
            )),
            // Whatever it is, it may be part of a secret, so it is not told.
            None => {}
        }
        resolved.text.push_str(written);
    }
    resolved.text.push_str(rest);
    resolved
}

/// Placeholders that a later version fills; passing them on would look like it worked.
fn is_planned(inner: &str) -> bool {
    matches!(inner, "MCPO_WORKDIR" | "MCPO_JOB_ID")
        || inner.starts_with("user:")
        || inner.starts_with("header:")
}

fn is_name(inner: &str) -> bool {
    inner.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '_' | ':'))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(text: &str, expected: &str, mistakes: &[&str], warnings: &[&str]) {
        let variable = |name: &str| match name {
            "KEY" => Some("se${env:KEY}cret"),
            "EMPTY" => Some(""),
            _ => None,
        };
        let resolved = resolve(text, variable);
        assert_eq!(resolved.text, expected);
        assert_eq!(resolved.mistakes, mistakes);
        assert_eq!(resolved.warnings, warnings);
    }

    #[test]
    fn variables_are_filled_in_once() {
        check("plain", "plain", &[], &[]);
        check("a${env:KEY}b${env:EMPTY}c", "ase${env:KEY}cretbc", &[], &[]);
        check("$KEY ${env:KEY", "$KEY ${env:KEY", &[], &[]);
    }

    #[test]
    fn every_missing_variable_is_told() {
        check(
            "${env:A} ${env:KEY} ${env:}",
            "${env:A} se${env:KEY}cret ${env:}",
            &[
                "the variable `A` of ${env:A} is not set, or is not UTF-8 text",
                "the variable `` of ${env:} is not set, or is not UTF-8 text",
            ],
            &[],
        );
    }

    #[test]
    fn planned_placeholders_are_refused_and_others_warn() {
        check(
            "${user:id}",
            "${user:id}",
            &["the placeholder ${user:id} is not supported by this version"],
            &[],
        );
        check(
            "${HOME}",
            "${HOME}",
            &[],
            &["${HOME} is passed on as written; for a variable write ${env:NAME}"],
        );
        check("pass${w%r&}", "pass${w%r&}", &[], &[]);
    }
}
