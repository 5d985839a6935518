//! The keywords of JSON Schema 2020-12, and what each has to hold.

use crate::code::Code;

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
    pub(crate) code: Code,
}

/// The keyword of this name.
pub(crate) fn find(name: &str) -> Option<Keyword> {
    let found = KEYWORDS.iter().find(|(_, _, names)| names.contains(&name));
    found.map(|(form, code, names)| {
        let place = names.iter().position(|it| *it == name).unwrap_or_default();
        Keyword { name: names[place], form: *form, code: *code }
    })
}

const KEYWORDS: &[(Form, Code, &[&str])] = &[
    (Form::Type, Code::S008, &["type"]),
    (Form::Map, Code::S003, &["properties", "patternProperties", "dependentSchemas"]),
    (Form::Map, Code::S003, &["$defs", "definitions"]),
    (Form::Schema, Code::S005, &["items", "contains", "propertyNames", "contentSchema"]),
    (Form::Schema, Code::S005, &["not", "if", "then", "else"]),
    (Form::Schema, Code::S022, &["additionalProperties", "additionalItems"]),
    (Form::Schema, Code::S022, &["unevaluatedProperties", "unevaluatedItems"]),
    (Form::Schemas, Code::S005, &["allOf", "anyOf", "oneOf", "prefixItems"]),
    (Form::Names, Code::S007, &["required"]),
    (Form::List, Code::S031, &["enum", "examples"]),
    (Form::Number, Code::S031, &["minimum", "maximum", "multipleOf"]),
    (Form::Number, Code::S009, &["exclusiveMinimum", "exclusiveMaximum"]),
    (Form::Size, Code::S031, &["minLength", "maxLength", "minItems", "maxItems"]),
    (Form::Size, Code::S031, &["minProperties", "maxProperties", "minContains", "maxContains"]),
    (Form::Bool, Code::S031, &["uniqueItems", "deprecated", "readOnly", "writeOnly"]),
    (Form::Text, Code::S031, &["title", "description", "$comment", "format", "pattern"]),
    (Form::Text, Code::S031, &["$schema", "$id", "$ref", "$anchor", "$dynamicRef"]),
    (Form::Text, Code::S031, &["$dynamicAnchor", "contentEncoding", "contentMediaType"]),
    (Form::Any, Code::S031, &["default", "const", "dependencies", "dependentRequired"]),
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
