//! Names as a client takes them: of a tool and of its arguments. Each leads back to the one that the server knows.

use std::collections::HashSet;

use crate::fault::Fault;
use crate::node::{Member, Node, member, position};
use crate::notes::Notes;
use crate::profile::Names;

/// Renames arguments that have other letters than these. Gives the names that are shown, and what they stand for.
pub(crate) fn rename_keys(
    root: &mut Node<'_>,
    names: &Names,
    notes: &mut Notes,
) -> Vec<(String, String)> {
    let Some(members) = root.as_members_mut() else { return Vec::new() };
    let Some(at) = position(members, "properties") else { return Vec::new() };
    let Node::Object(properties) = &mut members[at].value else { return Vec::new() };
    let mut taken: HashSet<String> = properties.iter().map(|it| it.name().into_owned()).collect();
    let mut renamed: Vec<(String, String)> = Vec::new();
    for property in properties {
        let original = property.name().into_owned();
        if names.fit(&original) {
            continue;
        }
        let mut shown = names.fitted(&original);
        if taken.contains(&shown) {
            shown = names.marked(&original);
        }
        taken.insert(shown.clone());
        property.rename(&shown);
        notes.inside("properties", |notes| {
            notes.inside(&original, |notes| notes.mend(Fault::Key, format!("is `{shown}`")));
        });
        renamed.push((shown, original));
    }
    if !renamed.is_empty() {
        follow(members, &renamed, notes);
    }
    renamed
}

/// What else at the root speaks of the arguments.
fn follow(members: &mut Vec<Member<'_>>, renamed: &[(String, String)], notes: &mut Notes) {
    if let Some(at) = position(members, "required")
        && let Node::List(required) = &mut members[at].value
    {
        for name in required {
            let shown =
                name.as_text().and_then(|it| renamed.iter().find(|(_, original)| *original == it));
            if let Some((shown, _)) = shown {
                *name = Node::text(shown);
            }
        }
    }
    for keyword in
        ["if", "then", "else", "not", "dependentSchemas", "dependentRequired", "propertyNames"]
    {
        if member(members, keyword).is_some() {
            crate::node::take(members, keyword);
            notes.inside(keyword, |notes| {
                notes.enforce(Fault::Key, "speaks of other names: taken out")
            });
        }
    }
}

/// The tool's name as it is shown, if it is another one.
pub(crate) fn rename_tool(
    members: &mut Vec<Member<'_>>,
    names: &Names,
    notes: &mut Notes,
) -> Option<String> {
    let at = position(members, "name")?;
    let original = members[at].value.as_text()?.into_owned();
    if original.is_empty() || names.fit(&original) {
        return None;
    }
    let shown = names.marked(&original);
    members[at].value = Node::text(&shown);
    if member(members, "title").is_none() {
        members.insert(at + 1, Member::new("title", Node::text(&original)));
    }
    let fault = if names.has_letters(&original) { Fault::NameLength } else { Fault::NameLetters };
    notes.inside("name", |notes| notes.mend(fault, format!("is `{shown}`")));
    Some(original)
}
