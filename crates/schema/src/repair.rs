//! A tool put right: first valid, then in the shape that a client takes.

use std::borrow::Cow;
use std::collections::HashSet;

use crate::fault::Fault;
use crate::fit::Want;
use crate::node::{Member, Node, member, position, set};
use crate::notes::{Effect, Finding, Notes, Repair};
use crate::plan::{Enforced, Plan};
use crate::profile::Profile;
use crate::valid::{self, Outcome};
use crate::walk::look;
use crate::{form, loosen, members, older, pattern, references, rename, shape};

/// A tool of more bytes is not looked at.
pub const MAX_BYTES: usize = 1 << 20;

/// What is taken out may be what references lead to, and what refers to nothing takes more: so often that is followed.
/// Then all references go.
const MAX_ROUNDS: usize = 8;

/// What was found in a tool, and what became of it.
#[derive(Debug)]
pub struct Report<'t> {
    /// The tool, repaired where that was needed.
    pub tool: Cow<'t, str>,
    /// Whether clients are to see it. In a list one without a name is not for them, nor a second one of a name.
    pub is_shown: bool,
    /// What was wrong.
    pub findings: Vec<Finding>,
    /// What a call of it needs.
    pub plan: Plan,
}

/// Repairs a tool, a JSON object as `tools/list` has it, for the clients of this profile.
///
/// A tool that needs nothing is given back as it is. So is a text that is no JSON object: that is not for this crate
/// to judge.
pub fn repair<'t>(tool: &'t str, profile: &Profile) -> Report<'t> {
    let (mut notes, mut plan) = (Notes::default(), Plan::default());
    let mut repaired = Cow::Borrowed(tool);
    if tool.len() > MAX_BYTES {
        notes.tell(Fault::TooLarge);
    } else if let Some(Node::Object(mut members)) = Node::parse(tool) {
        members::mend(&mut members, &mut notes);
        repair_arguments(&mut members, profile, &mut notes, &mut plan);
        repair_results(&mut members, profile, &mut notes);
        plan.name = rename::rename_tool(&mut members, &profile.tool_names, &mut notes);
        cut_description(&mut members, profile, &mut notes);
        if notes.is_changed {
            repaired = Cow::Owned(Node::Object(members).written());
        }
    }
    Report { tool: repaired, is_shown: true, findings: notes.findings, plan }
}

/// Repairs all tools of a list. A tool that has no name cannot be called, and of two with one name clients see the
/// first.
pub fn repair_list<'t>(
    tools: impl IntoIterator<Item = &'t str>,
    profile: &Profile,
) -> Vec<Report<'t>> {
    let mut names = HashSet::new();
    let mut repaired = Vec::new();
    for tool in tools {
        let mut report = repair(tool, profile);
        let fault = match name(&report.tool).map(|name| names.insert(name)) {
            Some(true) => None,
            Some(false) => Some(Fault::NameTwice),
            None => Some(Fault::NoName),
        };
        if let Some(fault) = fault {
            let repair = Repair { what: "not shown".to_owned(), effect: Effect::Same };
            let (place, repair) = ("/name".to_owned(), Some(repair));
            report.findings.push(Finding { fault, place, repair });
            report.is_shown = false;
        }
        repaired.push(report);
    }
    repaired
}

/// The name of a tool.
fn name(tool: &str) -> Option<String> {
    let Some(Node::Object(members)) = Node::parse(tool) else { return None };
    let name = member(&members, "name")?.as_text()?.into_owned();
    Some(name).filter(|name| !name.is_empty())
}

fn repair_arguments(
    members: &mut Vec<Member<'_>>,
    profile: &Profile,
    notes: &mut Notes,
    plan: &mut Plan,
) {
    if position(members, "inputSchema").is_none() {
        members.push(Member::new("inputSchema", Node::word("null")));
    }
    let Some(at) = position(members, "inputSchema") else { return };
    let schema = &mut members[at].value;
    notes.inside("inputSchema", |notes| {
        make_valid(schema, notes);
        let mut valid = schema.clone();
        older::drop_ignored(&mut valid);
        plan.want = Want::of(&valid);
        shape::shape_arguments(schema, profile, notes);
        settle(schema, notes, Effect::Enforced);
        // What speaks of other names is taken out, and may have been what kept an object closed.
        for _ in 0..2 {
            shape::require_known(schema, profile, notes);
            plan.keys.extend(rename::rename_keys(schema, &profile.keys, notes));
            settle(schema, notes, Effect::Enforced);
        }
        match notes.is_to_enforce {
            false => {}
            true if valid::can_check(&valid) => plan.enforced = Some(Enforced::new(valid)),
            true => notes.leave_to_server(),
        }
    });
}

/// Puts the schema of arguments right, and no more.
pub(crate) fn make_valid(schema: &mut Node<'_>, notes: &mut Notes) {
    form::mend_arguments(schema, notes);
    mend_words(schema, notes);
    settle(schema, notes, Effect::Wider);
}

/// Takes out what would take less where more is taken now, and the references to what is gone.
pub(crate) fn settle(schema: &mut Node<'_>, notes: &mut Notes, effect: Effect) {
    for _ in 0..MAX_ROUNDS {
        references::mend(schema, notes, effect);
        if !notes.has_wider() {
            return;
        }
        loosen::loosen(schema, notes, effect);
    }
    references::remove(schema, notes, effect);
    loosen::loosen(schema, notes, effect);
    notes.take_wider();
}

fn repair_results(members: &mut Vec<Member<'_>>, profile: &Profile, notes: &mut Notes) {
    let Some(at) = position(members, "outputSchema") else { return };
    let schema = &mut members[at].value;
    let is_shown = notes.inside("outputSchema", |notes| {
        if schema.is_null() {
            notes.mend(Fault::OutputForm, "taken out");
            return false;
        }
        form::mend_schema(schema, Fault::OutputForm, notes);
        mend_words(schema, notes);
        settle(schema, notes, Effect::Wider);
        shape::shape_results(schema, profile, notes);
        settle(schema, notes, Effect::Enforced);
        shape::require_known(schema, profile, notes);
        is_object(schema, profile, notes)
    });
    if !is_shown {
        members.remove(at);
    }
}

/// Whether the schema of results is of an object, or is taken though it is not.
fn is_object(schema: &mut Node<'_>, profile: &Profile, notes: &mut Notes) -> bool {
    if !profile.is_about(Fault::OutputRoot) {
        return true;
    }
    let of_type =
        schema.as_members().map(|members| member(members, "type").and_then(Node::as_text));
    match of_type {
        Some(Some(word)) if word == "object" => true,
        Some(None) if schema.as_members().is_some_and(|it| member(it, "properties").is_some()) => {
            if let Some(members) = schema.as_members_mut() {
                set(members, "type", Node::text("object"));
            }
            notes.inside("type", |notes| notes.mend(Fault::OutputRoot, "put in: `object`"));
            true
        }
        _ => {
            notes.widen(Fault::OutputRoot, "taken out");
            false
        }
    }
}

/// Puts patterns and references right. What the validator does not read then has no references.
fn mend_words(schema: &mut Node<'_>, notes: &mut Notes) {
    pattern::mend(schema, notes);
    references::mend(schema, notes, Effect::Wider);
    let mut has_names = false;
    look(schema, &mut |members| {
        has_names |= members.iter().any(|member| {
            matches!(
                &*member.name(),
                "$ref" | "$dynamicRef" | "$id" | "$anchor" | "$dynamicAnchor" | "$schema"
            )
        });
    });
    if has_names && matches!(valid::compile(schema), Outcome::Invalid) {
        references::remove(schema, notes, Effect::Wider);
    }
}

/// Cuts the description of the tool where its meaning suffers least: its client would cut it anywhere.
fn cut_description(members: &mut [Member<'_>], profile: &Profile, notes: &mut Notes) {
    let Some(max) = profile.max_description else { return };
    let Some(at) = position(members, "description") else { return };
    let Some(text) = members[at].value.as_text() else { return };
    let Some((kept, what)) = cut(&text, max) else { return };
    members[at].value = Node::text(kept);
    notes.inside("description", |notes| notes.mend(Fault::LongDescription, what));
}

/// Where a text is longer than this, in the units of the clients that count: those of JavaScript.
fn past(text: &str, max: usize) -> Option<usize> {
    let mut units = 0;
    let is_past = |letter: char| {
        units += letter.len_utf16();
        units > max
    };
    text.find(is_past)
}

/// The beginning of a text of more letters than these, and where it ends; `None` for one that is short enough. No more
/// than the half is given up for a better end.
fn cut(text: &str, max: usize) -> Option<(&str, &'static str)> {
    let end = past(text, max)?;
    let is_followed_by_space =
        |at: usize| text[at..].chars().next().is_some_and(char::is_whitespace);
    let letters = || text[..end].char_indices().map(|(at, it)| (at, it, at + it.len_utf8()));
    let late = |at: &usize| *at > end / 2;
    let mut sentences = letters().filter_map(|(at, letter, after)| match letter {
        '\n' => Some(at),
        '。' | '！' | '？' => Some(after),
        '.' | '!' | '?' if is_followed_by_space(after) => Some(after),
        _ => None,
    });
    let mut words =
        letters().map(|(_, _, after)| after).filter(|after| is_followed_by_space(*after));
    let (end, what) = match (sentences.rfind(late), words.rfind(late)) {
        (Some(end), _) => (end, "cut at the end of a sentence"),
        (None, Some(end)) => (end, "cut at the end of a word"),
        (None, None) => (end, "cut within a word"),
    };
    Some((text[..end].trim_end(), what))
}

#[cfg(test)]
mod tests;
