//! What a tool has besides its name and its schemas: texts, hints, icons. Clients read them by their types, and refuse
//! the whole list for one that is null or a list.

use crate::fault::Fault;
use crate::node::{Member, Node, member};
use crate::notes::Notes;

/// Takes out what is of the wrong kind.
pub(crate) fn mend(members: &mut Vec<Member<'_>>, notes: &mut Notes) {
    retain(members, notes, |name, value, notes| match (name, value) {
        ("description" | "title", value) => value.as_text().is_some(),
        ("annotations", Node::Object(hints)) => {
            retain(hints, notes, hint);
            true
        }
        ("icons", Node::List(icons)) => {
            drop_icons(icons, notes);
            true
        }
        ("_meta" | "execution", Node::Object(_) | Node::Deep(_)) => true,
        ("annotations" | "icons" | "_meta" | "execution", _) => false,
        _ => true,
    });
}

/// Keeps the members that pass.
fn retain(
    members: &mut Vec<Member<'_>>,
    notes: &mut Notes,
    passes: impl Fn(&str, &mut Node<'_>, &mut Notes) -> bool,
) {
    members.retain_mut(|member| {
        let name = member.name().into_owned();
        notes.inside(&name, |notes| {
            let stays = passes(&name, &mut member.value, notes);
            if !stays {
                notes.mend(Fault::Member, "taken out");
            }
            stays
        })
    });
}

/// Whether a member of the annotations is of its kind. A yes or no may have been written as a text.
fn hint(name: &str, value: &mut Node<'_>, notes: &mut Notes) -> bool {
    if name == "title" {
        return value.as_text().is_some();
    }
    if !name.ends_with("Hint") || value.as_bool().is_some() {
        return true;
    }
    let word = match value.as_text().as_deref() {
        Some("true") => "true",
        Some("false") => "false",
        _ => return false,
    };
    *value = Node::word(word);
    notes.mend(Fault::Member, "is no text");
    true
}

fn drop_icons(icons: &mut Vec<Node<'_>>, notes: &mut Notes) {
    let before = icons.len();
    icons.retain(|icon| {
        let source = icon.as_members().and_then(|icon| member(icon, "src"));
        source.and_then(Node::as_text).is_some()
    });
    if icons.len() < before {
        notes.mend(Fault::Member, "those without an address are taken out");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(tool: &str, expected: &str, places: &[&str]) {
        let mut node = Node::parse(tool).unwrap();
        let mut notes = Notes::default();
        mend(node.as_members_mut().unwrap(), &mut notes);
        assert_eq!(node.written(), expected);
        let found: Vec<_> = notes.findings.iter().map(|it| it.place.as_str()).collect();
        assert_eq!(found, places, "{tool}");
        assert!(notes.findings.iter().all(|it| it.fault == Fault::Member));
    }

    #[test]
    fn what_is_of_the_wrong_kind_is_taken_out() {
        check(
            r#"{"name":"t","title":null,"annotations":[],"_meta":null,"icons":{}}"#,
            r#"{"name":"t"}"#,
            &["/title", "/annotations", "/_meta", "/icons"],
        );
        check(
            r#"{"annotations":{"title":5,"readOnlyHint":"true","openWorldHint":null},"icons":[{"src":"a"},{}]}"#,
            r#"{"annotations":{"readOnlyHint":true},"icons":[{"src":"a"}]}"#,
            &[
                "/annotations/title",
                "/annotations/readOnlyHint",
                "/annotations/openWorldHint",
                "/icons",
            ],
        );
    }

    #[test]
    fn what_is_well_or_not_known_stays() {
        let well = r#"{"name":"t","description":"d","annotations":{"readOnlyHint":true,"x":null},"_meta":{"a":null},"icons":[],"execution":{},"x":null}"#;
        check(well, well, &[]);
    }
}
