//! What a body has to be: as mcpo checks it, by types and with what clients write for a value of another type; and, what
//! mcpo does not, within the limits that the document shows.

use std::collections::HashMap;

use super::limits::Limits;
use super::meaning::{Kind, Meaning, Object};

/// What a value has to be.
#[derive(Debug)]
pub(super) enum Field {
    Any,
    Text,
    Integer,
    Number,
    Bool,
    Null,
    /// An object of any members.
    Map,
    List(Box<Field>),
    Model(Model),
    /// Null, or this.
    Nullable(Box<Field>),
    OneOf(Vec<Field>),
    /// This, and within these limits.
    Limited(Box<Field>, Box<Limits>),
}

/// An object of known members.
#[derive(Debug)]
pub(super) struct Model {
    /// What errors call it.
    pub(super) name: String,
    pub(super) fields: Vec<Known>,
    pub(super) places: HashMap<String, usize>,
    /// Whether other members are left out.
    pub(super) is_closed: bool,
    /// The fields that a value must have, or gets.
    pub(super) expected: usize,
}

/// A member of an object.
#[derive(Debug)]
pub(super) struct Known {
    pub(super) name: String,
    pub(super) field: Field,
    pub(super) is_required: bool,
    /// What it is if it is not there, a JSON text.
    pub(super) default: Option<String>,
}

impl Known {
    pub(super) fn is_expected(&self) -> bool {
        self.is_required || self.default.is_some()
    }
}

impl Field {
    /// The field of a schema; `prefix` and `name` make the name of an object in it.
    pub(super) fn of(meaning: &Meaning<'_>, prefix: &str, name: &str) -> Self {
        if meaning.is_open {
            return Self::Any;
        }
        if let Some(ways) = meaning.unions.first() {
            return Self::one_of(ways, &format!("{prefix}_{name}"));
        }
        let field = Self::of_type(meaning, prefix, name);
        match Limits::of(meaning).filter(|_| !matches!(field, Self::Any)) {
            Some(limits) => Self::Limited(Box::new(field), Box::new(limits)),
            None => field,
        }
    }

    fn of_type(meaning: &Meaning<'_>, prefix: &str, name: &str) -> Self {
        match meaning.kind {
            None => Self::Any,
            Some(Kind::Text) => Self::Text,
            Some(Kind::Integer) => Self::Integer,
            Some(Kind::Number) => Self::Number,
            Some(Kind::Bool) => Self::Bool,
            Some(Kind::Null) => Self::Null,
            Some(Kind::List) => {
                let list = meaning.list.as_deref().filter(|list| list.first.is_empty());
                let items = list.and_then(|list| list.items.as_ref());
                Self::List(Box::new(match items {
                    Some(items) => Self::of(items, &format!("{prefix}_{name}"), "item"),
                    None => Self::Any,
                }))
            }
            Some(Kind::Object) => match meaning.object.as_deref() {
                Some(object) if !object.properties.is_empty() => {
                    let name = format!("{prefix}_{name}_model").replace("__", "_");
                    let name = name.trim_end_matches('_').to_owned();
                    Self::Model(Model::of(object, name))
                }
                _ => Self::Map,
            },
        }
    }

    fn one_of(ways: &[Meaning<'_>], prefix: &str) -> Self {
        let is_null = |way: &&Meaning<'_>| way.kind == Some(Kind::Null) && !way.is_open;
        let mut fields: Vec<Self> = Vec::new();
        for (at, way) in ways.iter().enumerate().filter(|(_, way)| !is_null(way)) {
            let field = Self::of(way, prefix, &format!("choice_{at}"));
            let is_plain = !matches!(field.unlimited(), Self::Model(_) | Self::List(_));
            match fields.iter_mut().find(|it| is_plain && it.label() == field.label()) {
                // Alternatives of one type are one, of which the limits are not told apart.
                Some(same) => *same = field.into_unlimited(),
                None => fields.push(field),
            }
        }
        let one = match fields.len() {
            0 => return Self::Null,
            1 => fields.pop().unwrap_or(Self::Any),
            _ => Self::OneOf(fields),
        };
        match ways.iter().any(|way| is_null(&way)) {
            true if !matches!(one, Self::Any) => Self::Nullable(Box::new(one)),
            _ => one,
        }
    }

    /// The same without its own limits.
    pub(super) fn unlimited(&self) -> &Self {
        match self {
            Self::Limited(field, _) => field,
            field => field,
        }
    }

    fn into_unlimited(self) -> Self {
        match self {
            Self::Limited(field, _) => *field,
            field => field,
        }
    }

    /// Whether there are limits for anything in it.
    fn has_limits(&self) -> bool {
        match self {
            Self::Limited(..) => true,
            Self::List(field) | Self::Nullable(field) => field.has_limits(),
            Self::Model(model) => model.has_limits(),
            Self::OneOf(fields) => fields.iter().any(Self::has_limits),
            _ => false,
        }
    }

    /// What errors call it as an alternative.
    pub(super) fn label(&self) -> String {
        match self {
            Self::Any => "any".to_owned(),
            Self::Text => "str".to_owned(),
            Self::Integer => "int".to_owned(),
            Self::Number => "float".to_owned(),
            Self::Bool => "bool".to_owned(),
            Self::Null => "none".to_owned(),
            Self::Map => "dict[str,any]".to_owned(),
            Self::List(items) => format!("list[{}]", items.label()),
            Self::Model(model) => model.name.clone(),
            Self::Nullable(field) => format!("nullable[{}]", field.label()),
            Self::Limited(field, _) => field.label(),
            Self::OneOf(fields) => {
                let labels: Vec<_> = fields.iter().map(Self::label).collect();
                format!("union[{}]", labels.join(","))
            }
        }
    }
}

impl Model {
    /// Whether there are limits for anything in it.
    pub(super) fn has_limits(&self) -> bool {
        self.fields.iter().any(|known| known.field.has_limits())
    }

    pub(super) fn of(object: &Object<'_>, name: String) -> Self {
        let fields: Vec<_> = object
            .properties
            .iter()
            .map(|(property, meaning)| Known {
                name: property.clone(),
                field: Field::of(meaning, &name, property),
                is_required: object.required.contains(property),
                default: meaning.note("default").map(crate::node::Node::written),
            })
            .collect();
        let expected = fields.iter().filter(|it| it.is_expected()).count();
        Self { name, fields, places: object.places(), is_closed: object.is_closed(), expected }
    }
}
