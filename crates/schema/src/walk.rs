//! Ways through a schema of proper form: from one schema to those inside it.

use crate::definitions::is_base;
use crate::keyword::{self, Form};
use crate::node::{Member, Node};
use crate::notes::Notes;

/// Visits every schema, outer ones first. What a visit puts in is visited too.
pub(crate) fn each_schema<'t>(
    node: &mut Node<'t>,
    notes: &mut Notes,
    visit: &mut dyn FnMut(&mut Vec<Member<'t>>, &mut Notes),
) {
    let Node::Object(members) = node else { return };
    visit(members, notes);
    each_inside(members, notes, &mut |inside, notes| each_schema(inside, notes, visit));
}

/// Visits every schema, inner ones first.
pub(crate) fn each_schema_from_inside<'t>(
    node: &mut Node<'t>,
    notes: &mut Notes,
    visit: &mut dyn FnMut(&mut Vec<Member<'t>>, &mut Notes),
) {
    let Node::Object(members) = node else { return };
    each_inside(members, notes, &mut |inside, notes| each_schema_from_inside(inside, notes, visit));
    visit(members, notes);
}

/// Visits every schema for which the references of the root mean the same, outer ones first: not those that have an
/// address of their own, nor what is inside them.
pub(crate) fn each_schema_of_base<'t>(
    root: &mut Node<'t>,
    notes: &mut Notes,
    visit: &mut dyn FnMut(&mut Vec<Member<'t>>, &mut Notes),
) {
    let Node::Object(members) = root else { return };
    visit(members, notes);
    each_inside(members, notes, &mut |inside, notes| {
        if !inside.as_members().is_some_and(is_base) {
            each_schema_of_base(inside, notes, visit);
        }
    });
}

/// Goes to the schemas that stand in these members.
fn each_inside<'t>(
    members: &mut [Member<'t>],
    notes: &mut Notes,
    go: &mut dyn FnMut(&mut Node<'t>, &mut Notes),
) {
    for member in members {
        let Some(keyword) = keyword::find(&member.name()) else { continue };
        let value = &mut member.value;
        notes.inside(keyword.name, |notes| match (keyword.form, value) {
            (Form::Schema, value) => go(value, notes),
            (Form::Map, Node::Object(all)) => {
                for one in all {
                    let name = one.name().into_owned();
                    notes.inside(&name, |notes| go(&mut one.value, notes));
                }
            }
            (Form::Schemas, Node::List(all)) => {
                for (at, one) in all.iter_mut().enumerate() {
                    notes.inside(&at.to_string(), |notes| go(one, notes));
                }
            }
            _ => {}
        });
    }
}

/// Looks at every schema, outer ones first.
pub(crate) fn look<'n, 't>(node: &'n Node<'t>, visit: &mut dyn FnMut(&'n [Member<'t>])) {
    look_where(node, visit, |_| true);
}

/// Looks at every schema that [`each_schema_of_base`] visits.
pub(crate) fn look_in_base<'n, 't>(root: &'n Node<'t>, visit: &mut dyn FnMut(&'n [Member<'t>])) {
    look_where(root, visit, |inside| !inside.as_members().is_some_and(is_base));
}

fn look_where<'n, 't>(
    node: &'n Node<'t>,
    visit: &mut dyn FnMut(&'n [Member<'t>]),
    passes: fn(&Node<'_>) -> bool,
) {
    let Node::Object(members) = node else { return };
    visit(members);
    let mut go = |inside: &'n Node<'t>| {
        if passes(inside) {
            look_where(inside, visit, passes);
        }
    };
    for member in members {
        let Some(keyword) = keyword::find(&member.name()) else { continue };
        match (keyword.form, &member.value) {
            (Form::Schema, value) => go(value),
            (Form::Map, Node::Object(all)) => all.iter().for_each(|one| go(&one.value)),
            (Form::Schemas, Node::List(all)) => all.iter().for_each(&mut go),
            _ => {}
        }
    }
}
