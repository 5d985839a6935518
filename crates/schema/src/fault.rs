//! What can be wrong with a tool: every kind once, with its code, how bad it is, what it means, how its author puts it
//! right, and what is done about it here.
//!
//! Codes and names are stable: logs, metrics, profiles and reports name them. A code stands for one subject and may
//! have several faults.

/// How bad a fault is for clients, by what is known of all of them: `pontoon doctor`, docs/codes.md and the log of the
/// bridge go by it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Severity {
    /// Good to know.
    Information,
    /// Some clients make less of the tool, or lose it by what is read or reported of them.
    Warning,
    /// A client that was run loses the tool, all tools of its server, or answers.
    Error,
}

impl Severity {
    /// The word for it.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Information => "information",
            Self::Warning => "warning",
            Self::Error => "error",
        }
    }
}

macro_rules! faults {
    ($($fault:ident $code:ident $name:literal $severity:ident {
        $meaning:literal
        fix: $fix:literal
        here: $here:literal
    })*) => {
        /// A kind of fault in a tool.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        #[non_exhaustive]
        pub enum Fault { $(#[doc = $meaning] $fault,)* }

        impl Fault {
            /// Every fault, by its code.
            pub const ALL: &'static [Fault] = &[$(Fault::$fault,)*];

            /// The code of its subject, such as `S003`.
            pub fn code(self) -> &'static str {
                match self { $(Self::$fault => stringify!($code),)* }
            }

            /// Code and name, such as `S005/tuple`.
            pub fn id(self) -> &'static str {
                match self { $(Self::$fault => concat!(stringify!($code), "/", $name),)* }
            }

            /// How bad it is.
            pub fn severity(self) -> Severity {
                match self { $(Self::$fault => Severity::$severity,)* }
            }

            /// What is wrong.
            pub fn meaning(self) -> &'static str {
                match self { $(Self::$fault => $meaning,)* }
            }

            /// How its author puts it right.
            pub fn fix(self) -> &'static str {
                match self { $(Self::$fault => $fix,)* }
            }

            /// What is done about it here.
            pub fn here(self) -> &'static str {
                match self { $(Self::$fault => $here,)* }
            }
        }
    };
}

impl Fault {
    /// The fault of this code and name.
    pub fn named(id: &str) -> Option<Self> {
        Self::ALL.iter().copied().find(|fault| fault.id() == id)
    }
}

faults! {
    NoInput S001 "no-input" Error {
        "`inputSchema` is missing, null or no object"
        fix: "Give every tool an `inputSchema`; one without arguments has `{\"type\": \"object\", \"properties\": {}}`."
        here: "An object of any members is put in its place."
    }
    RootType S002 "root-type" Error {
        "the `type` of the arguments is missing or not `object`"
        fix: "Write `\"type\": \"object\"` into the schema itself, next to `properties`."
        here: "`object` is put in: the arguments of a tool are always one."
    }
    Map S003 "map" Error {
        "`properties`, or another map of schemas, is null or a list"
        fix: "Write `{}` for an empty one (`json::object()` in nlohmann/json, where `{}` is null; `new stdClass` in PHP, where `[]` is a list)."
        here: "Null and the empty list are `{}`, a list of a name and a schema is a map; anything else is taken out."
    }
    NoProperties S003 "no-properties" Warning {
        "the arguments have no `properties`"
        fix: "Write `\"properties\": {}` where there are none."
        here: "`properties` is put in, empty, which says the same."
    }
    RootUnion S004 "root-union" Error {
        "`oneOf`, `anyOf`, `allOf` or `$ref` at the root of the arguments"
        fix: "Write one object with the properties of all alternatives and say in their descriptions which belong together, or make a tool of each."
        here: "One object is shown with the properties of all; the alternatives are named in its description, and the original is enforced."
    }
    RootCondition S004 "root-condition" Warning {
        "`if`, `not` or a dependency between properties at the root of the arguments"
        fix: "Say it in the descriptions, and check it in the tool."
        here: "It is left out for clients that refuse it, and enforced."
    }
    NoSchema S005 "no-schema" Error {
        "something else where a schema has to stand"
        fix: "Write a schema there: `{}` for anything, `{\"type\": \"string\"}` for a text."
        here: "Null and the empty list are `{}`, the name of a type is a schema of it; for anything else any value is taken."
    }
    WordList S005 "word-list" Error {
        "a list of words where a schema has to stand, such as `[\"type\", \"number\"]`"
        fix: "One more pair of braces in C++: `{\"items\", {{\"type\", \"number\"}}}`."
        here: "The words are the schema's keywords and their values."
    }
    Tuple S005 "tuple" Error {
        "`items` is a list of schemas, as older drafts have it"
        fix: "`prefixItems`, with `items` for the rest."
        here: "It is `prefixItems`, and `additionalItems` is `items`."
    }
    YesNo S005 "yes-no" Error {
        "`true` or `false` for the schema of an argument, which is valid"
        fix: "`{}` for any value; leave the argument out if it takes none."
        here: "It is an object that says the same, for clients that take nothing else."
    }
    NoItems S006 "no-items" Warning {
        "a list of which the items are not told"
        fix: "Write `items` with the schema of an item, or `{}` if it may be anything."
        here: "`\"items\": {}` is put in, which says the same."
    }
    RequiredForm S007 "required-form" Error {
        "`required` is no list of names"
        fix: "A list of the properties that have to be there; leave it out if there are none."
        here: "One name is a list of one; what is no name is taken out."
    }
    RequiredInside S007 "required-inside" Error {
        "a property says of itself that it is required, as drafts before 04 have it"
        fix: "Name it in the `required` of the object around it."
        here: "It is named there."
    }
    RequiredTwice S007 "required-twice" Error {
        "a name stands twice in `required`"
        fix: "Name each property once."
        here: "It stands once."
    }
    RequiredUnknown S007 "required-unknown" Warning {
        "`required` names a property that is not there"
        fix: "Describe the property, or do not require it."
        here: "A property of any value is put in; it stays required."
    }
    RequiredPartly S007 "required-partly" Information {
        "a property that `required` does not name"
        fix: "Nothing, if the server is for other clients too. Else name every property there, and let those that may be left out be null: `\"type\": [\"string\", \"null\"]`."
        here: "Nothing: a property that may be left out stays so, and the tool is not one for strict mode."
    }
    TypeWord S008 "type-word" Error {
        "a type in the words of another language (`int`, `str`, `float`, `any`), or one that stands twice"
        fix: "JSON Schema has `string`, `number`, `integer`, `boolean`, `object`, `array` and `null`; for any type leave `type` out."
        here: "It is the type of JSON Schema; `any` is left out."
    }
    TypeUnknown S008 "type-unknown" Error {
        "a `type` that JSON Schema does not know"
        fix: "JSON Schema has `string`, `number`, `integer`, `boolean`, `object`, `array` and `null`."
        here: "It is taken out, so any type is taken."
    }
    OldLimit S009 "old-limit" Error {
        "`exclusiveMinimum` or `exclusiveMaximum` as a yes or no, as draft 04 has it"
        fix: "Write the limit itself: `\"exclusiveMinimum\": 0`."
        here: "It is the limit itself."
    }
    OldWord S009 "old-word" Warning {
        "a keyword of an older draft: `id`, `divisibleBy`, `extends`, `dependencies`, `disallow`"
        fix: "`$id`, `multipleOf`, `allOf`, `dependentRequired` or `dependentSchemas`, `not`."
        here: "It has its new name."
    }
    OldDialect S010 "old-dialect" Information {
        "`$schema` names an older draft, or none that is known"
        fix: "Leave `$schema` out: draft 2020-12 is what MCP means without it. Have the generator write that draft."
        here: "The words of older drafts are brought up to date, and `$schema` is left out for clients that mind it."
    }
    OldDialectOutput S010 "old-dialect-output" Warning {
        "`$schema` of `outputSchema` names an older draft, or none that is known"
        fix: "Leave `$schema` out: draft 2020-12 is what MCP means without it."
        here: "It is left out."
    }
    Definitions S011 "definitions" Information {
        "`definitions`, as older drafts call `$defs`"
        fix: "`$defs`, and `#/$defs/…` in the references."
        here: "It is `$defs` for clients that know only that."
    }
    Dangling S011 "dangling" Warning {
        "a `$ref` to something that is not there"
        fix: "Bring the definitions along: they have to stand in the same schema, mostly under `$defs`."
        here: "The reference is taken out, so any value is taken."
    }
    Remote S011 "remote" Warning {
        "a `$ref` to another document"
        fix: "Write what it refers to into the schema: clients do not fetch documents."
        here: "The reference is taken out, so any value is taken."
    }
    Siblings S011 "siblings" Information {
        "keywords beside a `$ref`, which drafts before 2019-09 ignore"
        fix: "`allOf` with the reference, and the rest beside it, if older readers matter."
        here: "Nothing: they count in draft 2020-12. They are not enforced where `$schema` names a draft that ignores them."
    }
    Recursive S012 "recursive" Warning {
        "a schema that refers to itself"
        fix: "Limit the depth in the schema, or take a JSON text instead."
        here: "For clients that know no references it is cut where it begins anew; what is deeper is left to the server."
    }
    Key S013 "key" Error {
        "the name of an argument that has other letters than `A-Z a-z 0-9 _ . -`, or more than 64"
        fix: "Name arguments with these letters, such as `top` for `$top` and `uids` for `uids[]`."
        here: "It is shown with another name; calls have the original one."
    }
    DeepKey S013 "deep-key" Information {
        "a property further inside with such a name"
        fix: "The same, where a client minds it."
        here: "Nothing."
    }
    NameLetters S014 "name-letters" Warning {
        "a tool's name with letters that a client does not take"
        fix: "Name tools with `A-Z a-z 0-9 _ -`."
        here: "It is shown with another name; calls have the original one, and the title keeps it."
    }
    NameLength S014 "name-length" Error {
        "a tool's name that is too long, with what clients put before it"
        fix: "Clients write `mcp__SERVER__` before it and take 64 letters together: use 40 or fewer."
        here: "It is shown cut, with a few letters that tell it from others; calls have the original one."
    }
    NameTwice S014 "name-twice" Error {
        "two tools with one name"
        fix: "Give each tool a name of its own."
        here: "The first is shown. A call says the name and nothing else, and the server knows one tool by it: a second one under a name of ours would show one tool and run the other."
    }
    NoName S014 "no-name" Error {
        "a tool without a name"
        fix: "Give each tool a `name`."
        here: "It is left out, for it cannot be called."
    }
    OutputForm S015 "output-form" Error {
        "`outputSchema` is no valid schema"
        fix: "Check it with a validator for draft 2020-12, references included; clients compile it."
        here: "It is repaired as `inputSchema` is, and left out where that does not help; results still pass."
    }
    OutputRoot S015 "output-root" Error {
        "`outputSchema` is not of `type` `object`"
        fix: "Put the value into an object: `{\"result\": …}`."
        here: "It is left out; results still pass."
    }
    OutputUnkept S015 "output-unkept" Error {
        "a result without the `structuredContent` that `outputSchema` promises"
        fix: "Return `structuredContent` with every result that is no error, or leave `outputSchema` out."
        here: "A JSON text in the result is taken for it."
    }
    Pattern S016 "pattern" Warning {
        "a `pattern` that is no regular expression of ECMA-262"
        fix: "No inline flags such as `(?i)`, no `(?P<name>`, `\\A`, `\\Z`: what JavaScript takes with the flag `u`."
        here: "It is taken out and told in the description."
    }
    EnumEmpty S017 "enum-empty" Warning {
        "an empty `enum`, which allows nothing"
        fix: "Leave `enum` out if nothing is known."
        here: "It is taken out."
    }
    EnumMixed S017 "enum-mixed" Warning {
        "an `enum` of values of several types, or with null in it"
        fix: "Values of one type; leave null out and the property optional."
        here: "Nothing, but for clients that take texts only."
    }
    EnumNumbers S017 "enum-numbers" Information {
        "an `enum` of other values than texts"
        fix: "Texts, where a client takes nothing else."
        here: "For such clients it is told in the description, and enforced."
    }
    Const S017 "const" Information {
        "`const`"
        fix: "An `enum` with one value says the same and is known to more clients."
        here: "It is such an `enum` for clients that do not know it."
    }
    Nullable S018 "nullable" Warning {
        "`nullable`, which is OpenAPI 3.0 and says nothing in JSON Schema"
        fix: "`\"type\": [\"string\", \"null\"]`."
        here: "Null is one of its types."
    }
    TypeList S018 "type-list" Information {
        "several types in one list"
        fix: "One type, and the property optional, where a client takes only one."
        here: "For such clients it is one type and `nullable`, or `anyOf`."
    }
    Format S019 "format" Information {
        "a `format` that JSON Schema, or a client, does not know"
        fix: "Say it in the description, or with `minimum`, `maximum` and `contentEncoding`."
        here: "It is left out for clients that refuse it."
    }
    Untyped S020 "untyped" Warning {
        "an argument of which nothing tells the type, so models send texts"
        fix: "Give it a `type`."
        here: "Nothing: a type is not invented."
    }
    Default S021 "default" Warning {
        "a `default` that its own schema refuses"
        fix: "A default of the right type, or none."
        here: "Nothing."
    }
    Additional S022 "additional" Error {
        "`additionalProperties` is neither a schema nor a yes or no"
        fix: "`false`, `true` or a schema."
        here: "A text is the yes or no it says; anything else is taken out."
    }
    AdditionalOpen S022 "additional-open" Information {
        "an object that takes other properties than it names: it has no `\"additionalProperties\": false`"
        fix: "`\"additionalProperties\": false` in each object that takes no others."
        here: "Nothing: what the server takes is not refused, and the tool is not one for strict mode."
    }
    Limits S023 "limits" Warning {
        "limits that no value can keep, such as a `minimum` above the `maximum`"
        fix: "Exchange them."
        here: "Nothing."
    }
    Size S023 "size" Error {
        "a size that is negative or no whole number, or a `multipleOf` that is not above 0"
        fix: "Sizes are whole numbers from 0 on."
        here: "It is taken out."
    }
    NoDescription S024 "no-description" Warning {
        "a tool without a description"
        fix: "Say what it does and when to use it; models choose by this."
        here: "Nothing."
    }
    LongDescription S024 "long-description" Warning {
        "a description that is longer than some clients take"
        fix: "1,024 letters or fewer."
        here: "For a client that is known to cut it anywhere (Claude Code, after 4,096 letters), it is cut before that: at the end of a sentence, or of a word where there is none. For others nothing."
    }
    ControlLetters S024 "control-letters" Warning {
        "control characters in a description"
        fix: "Plain text and line breaks."
        here: "Nothing."
    }
    Persuasion S024 "persuasion" Warning {
        "a description that speaks to the model about other things than the tool"
        fix: "Describe the tool; leave out orders to the model, and ask who put them there."
        here: "Nothing."
    }
    TooLarge S025 "too-large" Warning {
        "a tool that is too large to be looked at"
        fix: "A tool of some kilobytes: each is sent to the model with every request."
        here: "Nothing."
    }
    TooDeep S025 "too-deep" Warning {
        "a schema that is nested too deep"
        fix: "Flatter arguments, or a JSON text."
        here: "What is nested deeper is any value."
    }
    TooMany S025 "too-many" Warning {
        "more tools than a client takes"
        fix: "Fewer tools with more arguments, or several servers."
        here: "Nothing."
    }
    Order S026 "order" Information {
        "the tools come in another order each time"
        fix: "List them in a fixed order: models' caches go by it."
        here: "The catalogue keeps the order in which they were first learnt; what is new comes after them."
    }
    Header S027 "header" Error {
        "an `x-mcp-header` that is no name of a header, stands twice or cannot be reached"
        fix: "A token such as `Region`, at a property that has a plain type, once in a tool."
        here: "It is taken out, so that no header is sent."
    }
    Annotations S028 "annotations" Warning {
        "annotations that contradict each other: read-only and destructive"
        fix: "`destructiveHint` means something only where `readOnlyHint` is false."
        here: "Nothing."
    }
    Pages S029 "pages" Error {
        "pages of tools that repeat themselves or never end"
        fix: "`nextCursor` only where there are more tools, another one each time."
        here: "Reading stops where a cursor or its tools come again."
    }
    Serialised S030 "serialised" Error {
        "an object of a schema library written out as it is (`_def`, `~standard`)"
        fix: "Convert it: `z.toJSONSchema`, `model_json_schema()`."
        here: "An object of any members is put in its place."
    }
    Keyword S031 "keyword" Error {
        "a keyword with a value of the wrong kind, such as null"
        fix: "Leave the keyword out if there is nothing to say."
        here: "Null says nothing and is taken out, a number in quotes is a number; anything else is taken out."
    }
    Unsupported S032 "unsupported" Information {
        "a keyword that a client does not take"
        fix: "Nothing has to be done at the source, if the server is for other clients too."
        here: "It is left out for that client, told in the description where that helps, and enforced."
    }
    Arguments S033 "arguments" Information {
        "arguments of another type than the tool takes, such as a JSON text for a list, or null for one that is left out"
        fix: "Nothing: models write such. A tool can take both."
        here: "A text that is what the tool takes is written as that, and null is left out, where the tool would refuse it as it is."
    }
    Member S034 "member" Error {
        "a description, annotations, icons or another member of the tool that is null or of the wrong kind"
        fix: "Leave out what is empty; an empty object is `{}` (`new stdClass` in PHP, where `[]` is a list)."
        here: "It is taken out; a hint in quotes is a yes or no."
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_code_from_1_to_34_has_faults_and_every_fault_one_name() {
        let mut codes: Vec<_> = Fault::ALL.iter().map(|fault| fault.code()).collect();
        assert!(codes.is_sorted(), "{codes:?}");
        codes.dedup();
        assert_eq!(codes, (1..=34).map(|n| format!("S{n:03}")).collect::<Vec<_>>());
        for fault in Fault::ALL {
            assert_eq!(Fault::named(fault.id()), Some(*fault));
        }
    }
}
