//! The keywords of JSON Schema 2020-12, and what each has to hold.

use crate::fault::Fault;

/// What a keyword holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Form {
    /// The name of a type, or several.
    Type,
    /// A schema.
    Schema,
    /// Schemas by name.
    Map,
    /// A list of schemas.
    Schemas,
    /// A list of different names.
    Names,
    /// Lists of different names, by name.
    NameLists,
    /// A list of anything.
    List,
    /// A number.
    Number,
    /// A whole number, zero or more.
    Size,
    /// Yes or no.
    Bool,
    /// A text.
    Text,
    /// Anything at all.
    Any,
}

/// A keyword.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Keyword {
    /// Its name.
    pub(crate) name: &'static str,
    /// What it holds.
    pub(crate) form: Form,
    /// The fault of one that holds something else.
    pub(crate) fault: Fault,
}

/// The keyword of this name.
pub(crate) fn find(name: &str) -> Option<Keyword> {
    let found = KEYWORDS.iter().find(|(_, _, names)| names.contains(&name));
    found.map(|(form, fault, names)| {
        let place = names.iter().position(|it| *it == name).unwrap_or_default();
        Keyword { name: names[place], form: *form, fault: *fault }
    })
}

const KEYWORDS: &[(Form, Fault, &[&str])] = &[
    (Form::Type, Fault::TypeUnknown, &["type"]),
    (Form::Map, Fault::Map, &["properties", "patternProperties", "dependentSchemas"]),
    (Form::Map, Fault::Map, &["$defs", "definitions"]),
    (Form::Schema, Fault::NoSchema, &["items", "contains", "propertyNames", "contentSchema"]),
    (Form::Schema, Fault::NoSchema, &["not", "if", "then", "else"]),
    (Form::Schema, Fault::Additional, &["additionalProperties", "additionalItems"]),
    (Form::Schema, Fault::Additional, &["unevaluatedProperties", "unevaluatedItems"]),
    (Form::Schemas, Fault::NoSchema, &["allOf", "anyOf", "oneOf", "prefixItems"]),
    (Form::Names, Fault::RequiredForm, &["required"]),
    (Form::List, Fault::Keyword, &["enum", "examples"]),
    (Form::Number, Fault::Keyword, &["minimum", "maximum", "multipleOf"]),
    (Form::Number, Fault::OldLimit, &["exclusiveMinimum", "exclusiveMaximum"]),
    (Form::Size, Fault::Size, &["minLength", "maxLength", "minItems", "maxItems"]),
    (Form::Size, Fault::Size, &["minProperties", "maxProperties", "minContains", "maxContains"]),
    (Form::Bool, Fault::Keyword, &["uniqueItems", "deprecated", "readOnly", "writeOnly"]),
    (Form::Text, Fault::Keyword, &["title", "description", "$comment", "format", "pattern"]),
    (Form::Text, Fault::Keyword, &["$schema", "$id", "$ref", "$anchor", "$dynamicRef"]),
    (Form::Text, Fault::Keyword, &["$dynamicAnchor", "contentEncoding", "contentMediaType"]),
    (Form::NameLists, Fault::Keyword, &["dependentRequired"]),
    (Form::Any, Fault::Keyword, &["default", "const"]),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_keyword_stands_once_and_is_found() {
        let names: Vec<_> = KEYWORDS.iter().flat_map(|(_, _, names)| names.iter()).collect();
        for name in &names {
            assert_eq!(names.iter().filter(|it| it == &name).count(), 1, "{name}");
            assert_eq!(find(name).unwrap().name, **name);
        }
        assert!(find("position").is_none());
    }
}
