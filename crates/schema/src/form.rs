//! The form of a schema: every keyword holds what draft 2020-12 has it hold.
//!
//! What can only mean one thing is written so. What has no meaning at all is taken out, which makes the schema take more
//! values, never fewer. Afterwards the schema is valid, but for its references and patterns.

use std::borrow::Cow;
use std::collections::HashSet;

use crate::fault::Fault;
use crate::keyword::{self, Form, Keyword};
use crate::node::{Member, Node, is_number, position, take};
use crate::notes::Notes;
use crate::older;
use crate::type_words::{self, WordMeaning};

/// What becomes of a member.
#[derive(PartialEq, Eq)]
enum Fate {
    Stays,
    Goes,
}

/// Puts the schema of the arguments right, which are always an object.
pub(crate) fn mend_arguments(node: &mut Node<'_>, notes: &mut Notes) {
    if let Node::List(items) = node
        && let Some(members) = unflattened(items)
    {
        *node = Node::Object(members);
        notes.mend(Fault::WordList, "the list of words is an object");
    }
    let is_serialised = is_serialised(node);
    let Some(members) = node.as_members_mut().filter(|_| !is_serialised) else {
        let fault = if is_serialised { Fault::Serialised } else { Fault::NoInput };
        notes.mend(fault, "put in: an object of any members");
        *node = Node::Object(vec![Member::new("type", Node::text("object"))]);
        return;
    };
    root_type(members, notes);
    if take(members, "nullable").is_some() {
        let what = "taken out: arguments are always an object";
        notes.inside("nullable", |notes| notes.mend(Fault::Nullable, what));
    }
    keywords(members, notes);
}

/// Puts a schema right, and whatever stands where one has to.
pub(crate) fn mend_schema(node: &mut Node<'_>, fault: Fault, notes: &mut Notes) {
    make_schema(node, fault, notes);
    if let Node::Object(members) = node {
        keywords(members, notes);
    }
}

/// An object of a schema library, with none of the words of JSON Schema.
fn is_serialised(node: &Node<'_>) -> bool {
    let Node::Object(members) = node else { return false };
    let has = |name| position(members, name).is_some();
    ["_def", "_zod", "~standard", "__pydantic_core_schema__"].into_iter().any(has)
        && !["type", "properties", "$ref"].into_iter().any(has)
}

fn root_type(members: &mut Vec<Member<'_>>, notes: &mut Notes) {
    let Some(at) = position(members, "type") else {
        members.insert(0, Member::new("type", Node::text("object")));
        return notes.inside("type", |notes| notes.mend(Fault::RootType, "put in: `object`"));
    };
    let value = &mut members[at].value;
    if value.as_text().as_deref() != Some("object") {
        // Arguments are an object whatever else the schema allows.
        *value = Node::text("object");
        notes.inside("type", |notes| notes.mend(Fault::RootType, "is `object`"));
    }
}

/// Makes a schema of what stands where one has to.
fn make_schema(node: &mut Node<'_>, fault: Fault, notes: &mut Notes) {
    let made = match node {
        Node::Object(_) => return,
        Node::Plain(_) if node.as_bool().is_some() => return,
        Node::Plain(_) if node.is_null() => Some((Vec::new(), fault, "null is an empty schema")),
        Node::Plain(_) => type_words::named(node).map(|word| {
            let of_type = vec![Member::new("type", Node::text(word))];
            (of_type, fault, "the name of a type is a schema of it")
        }),
        Node::List(items) if items.is_empty() => {
            Some((Vec::new(), fault, "the empty list is an empty schema"))
        }
        Node::List(items) => unflattened(items)
            .map(|members| (members, Fault::WordList, "the list of words is a schema")),
        Node::Deep(_) => {
            *node = Node::empty_object();
            return notes.widen(Fault::TooDeep, "any value");
        }
    };
    match made {
        Some((members, fault, what)) => {
            *node = Node::Object(members);
            notes.mend(fault, what);
        }
        None => {
            *node = Node::empty_object();
            notes.widen(fault, "no schema: any value is taken");
        }
    }
}

/// The members of a schema.
fn keywords(members: &mut Vec<Member<'_>>, notes: &mut Notes) {
    older::update(members, notes);
    let mut required = Vec::new();
    let mut is_open = false;
    members.retain_mut(|member| {
        let Some(keyword) = keyword::find(&member.name()) else { return true };
        let value = &mut member.value;
        let fate = notes.inside(keyword.name, |notes| {
            mend_keyword(keyword, value, &mut required, &mut is_open, notes)
        });
        fate == Fate::Stays
    });
    if is_open {
        // What says that there are no other properties counted those that were taken out.
        members.retain(|member| {
            !matches!(&*member.name(), "additionalProperties" | "unevaluatedProperties")
        });
    }
    require(members, &required);
}

/// One keyword.
fn mend_keyword(
    keyword: Keyword,
    value: &mut Node<'_>,
    required: &mut Vec<String>,
    is_open: &mut bool,
    notes: &mut Notes,
) -> Fate {
    let fault = keyword.fault;
    match keyword.form {
        Form::Any => Fate::Stays,
        Form::Map => {
            let is_properties = keyword.name == "properties";
            if !map(value, fault, is_properties.then_some(required), notes) {
                *is_open = true;
            }
            Fate::Stays
        }
        Form::Type => types(value, notes),
        // Without `items` some clients refuse a list, and an empty schema says the same.
        Form::Schema if value.is_null() && keyword.name == "items" => {
            mend_schema(value, fault, notes);
            Fate::Stays
        }
        _ if value.is_null() => goes(fault, "null says nothing: taken out", notes),
        Form::Schema => {
            if !make_word(value, fault, notes) {
                mend_schema(value, fault, notes);
            }
            Fate::Stays
        }
        Form::Schemas => schemas(keyword, value, notes),
        Form::Names => names(value, fault, notes),
        Form::NameLists => match value {
            Node::Object(members) => {
                members.retain_mut(|member| {
                    let name = member.name().into_owned();
                    let fate = notes.inside(&name, |notes| names(&mut member.value, fault, notes));
                    fate == Fate::Stays
                });
                Fate::Stays
            }
            _ => gone(fault, notes),
        },
        Form::List => judge(fault, matches!(value, Node::List(_)), notes),
        Form::Number | Form::Size => number(keyword, value, notes),
        Form::Bool => {
            let is_word = make_word(value, fault, notes) || value.as_bool().is_some();
            judge(fault, is_word, notes)
        }
        Form::Text => judge(fault, value.as_text().is_some(), notes),
    }
}

/// Makes a yes or no of one that is written as a text. True if it was.
fn make_word(value: &mut Node<'_>, fault: Fault, notes: &mut Notes) -> bool {
    let word = match value.as_text().as_deref() {
        Some("true") => "true",
        Some("false") => "false",
        _ => return false,
    };
    *value = Node::word(word);
    notes.mend(fault, "is no text");
    true
}

/// Schemas by name. False if there was nothing that could be kept. Properties that say of themselves that they are
/// required are added to `required`.
fn map(
    node: &mut Node<'_>,
    fault: Fault,
    mut required: Option<&mut Vec<String>>,
    notes: &mut Notes,
) -> bool {
    let made = match node {
        Node::Plain(_) if node.is_null() => Some((Vec::new(), "null is an empty object")),
        Node::List(items) if items.is_empty() => {
            Some((Vec::new(), "the empty list is an empty object"))
        }
        Node::List(items) => {
            paired(items, |_, value| !matches!(value, Node::Plain(_)) || value.is_null())
                .map(|members| (members, "the list of a name and a schema is an object"))
        }
        _ => None,
    };
    if let Some((members, what)) = made {
        *node = Node::Object(members);
        notes.mend(fault, what);
    }
    let Node::Object(members) = node else {
        *node = Node::empty_object();
        notes.widen(fault, "no map of schemas: taken out");
        return false;
    };
    for member in members {
        let name = member.name().into_owned();
        let schema = &mut member.value;
        notes.inside(&name, |notes| {
            make_schema(schema, Fault::NoSchema, notes);
            let Node::Object(members) = schema else { return };
            if let Some(required) = &mut required
                && says_required(members, notes)
            {
                required.push(name.clone());
            }
            keywords(members, notes);
        });
    }
    true
}

/// Whether a property says of itself that it is required, which is for its object to say; it does no more.
fn says_required(members: &mut Vec<Member<'_>>, notes: &mut Notes) -> bool {
    let Some(at) = position(members, "required") else { return false };
    let Some(is_required) = members[at].value.as_bool() else { return false };
    members.remove(at);
    notes.inside("required", |notes| {
        notes.mend(Fault::RequiredInside, "is said by the object around it");
    });
    is_required
}

fn require(members: &mut Vec<Member<'_>>, names: &[String]) {
    if names.is_empty() {
        return;
    }
    let at = position(members, "required").unwrap_or_else(|| {
        members.push(Member::new("required", Node::List(Vec::new())));
        members.len() - 1
    });
    let Node::List(known) = &mut members[at].value else { return };
    let mut seen: HashSet<_> =
        known.iter().filter_map(Node::as_text).map(Cow::into_owned).collect();
    for name in names {
        if seen.insert(name.clone()) {
            known.push(Node::text(name));
        }
    }
}

/// Several schemas.
fn schemas(keyword: Keyword, value: &mut Node<'_>, notes: &mut Notes) -> Fate {
    if let Node::Object(_) = value {
        *value = Node::List(vec![std::mem::replace(value, Node::empty_object())]);
        notes.mend(keyword.fault, "is a list of one schema");
    }
    let Node::List(items) = value else { return gone(keyword.fault, notes) };
    if items.is_empty() {
        return match keyword.name {
            "allOf" | "prefixItems" => {
                goes(keyword.fault, "the empty list says nothing: taken out", notes)
            }
            _ => gone(keyword.fault, notes),
        };
    }
    for (at, item) in items.iter_mut().enumerate() {
        notes.inside(&at.to_string(), |notes| match item.is_null() {
            // It may have been meant as the type of null.
            true => {
                *item = Node::empty_object();
                notes.widen(keyword.fault, "any value is taken");
            }
            false => mend_schema(item, keyword.fault, notes),
        });
    }
    Fate::Stays
}

fn types(value: &mut Node<'_>, notes: &mut Notes) -> Fate {
    match type_words::meaning(value) {
        WordMeaning::Proper => Fate::Stays,
        WordMeaning::Types(types) => {
            *value = type_words::node_of(&types);
            notes.mend(Fault::TypeWord, "in the words of JSON Schema");
            Fate::Stays
        }
        WordMeaning::Anything => goes(Fault::TypeWord, "any type: taken out", notes),
        WordMeaning::Unknown => gone(Fault::TypeUnknown, notes),
    }
}

/// A list of different names.
fn names(value: &mut Node<'_>, fault: Fault, notes: &mut Notes) -> Fate {
    match value {
        Node::Object(members) if members.is_empty() => {
            return goes(fault, "no names: taken out", notes);
        }
        Node::Plain(_) if value.as_bool().is_some() => {
            return goes(fault, "says nothing here: taken out", notes);
        }
        Node::Plain(_) if value.as_text().is_some() => {
            let name = value.clone();
            *value = Node::List(vec![name]);
            notes.mend(fault, "is a list of one name");
        }
        Node::List(items) => {
            let before = items.len();
            items.retain(|item| item.as_text().is_some());
            if items.len() < before {
                notes.widen(fault, "what is no name is taken out");
            }
            let (before, mut seen) = (items.len(), HashSet::new());
            items.retain(|item| seen.insert(item.as_text().unwrap_or_default().into_owned()));
            if items.len() < before {
                notes.mend(Fault::RequiredTwice, "each name stands once");
            }
        }
        _ => return gone(fault, notes),
    }
    Fate::Stays
}

/// A number, or one that is written as a text.
fn number(keyword: Keyword, value: &mut Node<'_>, notes: &mut Notes) -> Fate {
    let number = match value.as_number() {
        Some(number) => Some(number.to_owned()),
        None => value.as_text().map(|text| text.trim().to_owned()).filter(|text| is_number(text)),
    };
    let Some(number) = number else { return gone(Fault::Keyword, notes) };
    let size: f64 = number.parse().unwrap_or_default();
    let is_whole = size >= 0.0 && size.fract() == 0.0;
    match (keyword.form, keyword.name) {
        (Form::Size, name) if !is_whole => {
            return match name.starts_with("min") && size <= 0.0 {
                true => goes(Fault::Size, "is always so: taken out", notes),
                false => gone(Fault::Size, notes),
            };
        }
        (_, "multipleOf") if size <= 0.0 || !size.is_finite() => return gone(Fault::Size, notes),
        _ => {}
    }
    if value.as_number().is_none() {
        *value = Node::Plain(Cow::Owned(number));
        notes.mend(Fault::Keyword, "is a number");
    }
    Fate::Stays
}

fn goes(fault: Fault, what: &str, notes: &mut Notes) -> Fate {
    notes.mend(fault, what);
    Fate::Goes
}

fn gone(fault: Fault, notes: &mut Notes) -> Fate {
    notes.widen(fault, "has no meaning: taken out");
    Fate::Goes
}

fn judge(fault: Fault, is_well: bool, notes: &mut Notes) -> Fate {
    match is_well {
        true => Fate::Stays,
        false => gone(fault, notes),
    }
}

/// The schema that a list of its keywords and their values was meant as: `["type", "number"]`.
fn unflattened<'t>(items: &mut Vec<Node<'t>>) -> Option<Vec<Member<'t>>> {
    paired(items, |name, _| keyword::find(name).is_some())
}

/// The members of an object that was written as a list of names and values, if each pair passes. The list is empty
/// afterwards.
fn paired<'t>(
    items: &mut Vec<Node<'t>>,
    is_pair: impl Fn(&str, &Node<'t>) -> bool,
) -> Option<Vec<Member<'t>>> {
    let (pairs, rest) = items.as_chunks::<2>();
    let passes =
        |[name, value]: &[Node<'t>; 2]| name.as_text().is_some_and(|name| is_pair(&name, value));
    if pairs.is_empty() || !rest.is_empty() || !pairs.iter().all(passes) {
        return None;
    }
    let mut nodes = std::mem::take(items).into_iter();
    let mut members = Vec::new();
    while let (Some(name), Some(value)) = (nodes.next(), nodes.next()) {
        members.extend(Member::from_nodes(name, value));
    }
    Some(members)
}
