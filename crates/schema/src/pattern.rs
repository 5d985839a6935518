//! Patterns: regular expressions as ECMA-262 has them.

use std::borrow::Cow;

use crate::fault::Fault;
use crate::node::{Member, Node, describe, member, position, take};
use crate::notes::Notes;
use crate::walk::each_schema;

/// Takes out patterns that clients cannot compile, and tells them in the description.
pub(crate) fn mend(root: &mut Node<'_>, notes: &mut Notes) {
    each_schema(root, notes, &mut |members, notes| {
        let pattern = member(members, "pattern").and_then(Node::as_text).map(Cow::into_owned);
        if let Some(pattern) = pattern.filter(|pattern| !is_well(pattern)) {
            take(members, "pattern");
            describe(members, &format!("Has to match `{pattern}`."));
            notes.inside("pattern", |notes| {
                notes.widen(Fault::Pattern, "told in the description");
            });
        }
        names(members, notes);
    });
}

/// Patterns for names of properties.
fn names(members: &mut Vec<Member<'_>>, notes: &mut Notes) {
    let Some(at) = position(members, "patternProperties") else { return };
    let Node::Object(patterns) = &mut members[at].value else { return };
    let before = patterns.len();
    patterns.retain(|member| {
        let pattern = member.name();
        let is_well = is_well(&pattern);
        if !is_well {
            notes.inside("patternProperties", |notes| {
                notes.inside(&pattern, |notes| notes.widen(Fault::Pattern, "taken out"));
            });
        }
        is_well
    });
    if patterns.len() < before {
        // What says that there are no other properties counted those that were taken out.
        take(members, "additionalProperties");
        take(members, "unevaluatedProperties");
    }
}

/// Whether JavaScript compiles it with the flag `u`, as programs have it that are not of this year.
pub(crate) fn is_well(pattern: &str) -> bool {
    !has_modifiers(pattern) && regress::Regex::with_flags(pattern, "u").is_ok()
}

/// Flags for a part of an expression, such as `(?i:a)`, which few programs know yet.
fn has_modifiers(pattern: &str) -> bool {
    let (mut is_in_class, mut rest) = (false, pattern);
    while let Some(letter) = rest.chars().next() {
        rest = &rest[letter.len_utf8()..];
        match letter {
            '\\' => rest = rest.chars().next().map_or("", |it| &rest[it.len_utf8()..]),
            '[' => is_in_class = true,
            ']' => is_in_class = false,
            '(' if !is_in_class && rest.starts_with("?") => {
                let flags = rest[1..].trim_start_matches(['i', 'm', 's', '-']);
                if flags.len() < rest.len() - 1 && flags.starts_with(':') {
                    return true;
                }
            }
            _ => {}
        }
    }
    false
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn expressions_of_other_languages_are_known() {
        for well in [
            "",
            "^a+$",
            r"^\d{3}-[A-Z(?i]+$",
            "(?:a|b)",
            "(?<=a)b",
            "(?<year>[0-9]+)",
            "a+?b*?",
            r"\p{L}+",
            r"\(?x",
            "日本",
        ] {
            assert!(is_well(well), "{well}");
        }
        for foreign in
            ["(?i)x", "(?P<a>b)", r"\Ax\Z", "(?>a)", "a++", "(?#x)", "[", "(", "a**", "(?s:.)", "*"]
        {
            assert!(!is_well(foreign), "{foreign}");
        }
    }
}
