//! Ways through a schema of proper form: from one schema to those inside it.

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
    for member in members {
        let Some(keyword) = keyword::find(&member.name()) else { continue };
        let value = &mut member.value;
        notes.inside(keyword.name, |notes| match (keyword.form, value) {
            (Form::Schema, value) => each_schema(value, notes, visit),
            (Form::Map, Node::Object(all)) => {
                for one in all {
                    let name = one.name().into_owned();
                    notes.inside(&name, |notes| each_schema(&mut one.value, notes, visit));
                }
            }
            (Form::Schemas, Node::List(all)) => {
                for (at, one) in all.iter_mut().enumerate() {
                    notes.inside(&at.to_string(), |notes| each_schema(one, notes, visit));
                }
            }
            _ => {}
        });
    }
}

/// Looks at every schema, outer ones first.
pub(crate) fn look<'n, 't>(node: &'n Node<'t>, visit: &mut dyn FnMut(&'n [Member<'t>])) {
    let Node::Object(members) = node else { return };
    visit(members);
    for member in members {
        let Some(keyword) = keyword::find(&member.name()) else { continue };
        match (keyword.form, &member.value) {
            (Form::Schema, value) => look(value, visit),
            (Form::Map, Node::Object(all)) => all.iter().for_each(|one| look(&one.value, visit)),
            (Form::Schemas, Node::List(all)) => all.iter().for_each(|one| look(one, visit)),
            _ => {}
        }
    }
}
