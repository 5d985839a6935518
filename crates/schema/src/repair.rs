//! The repairs: what a fault can only mean is written as JSON Schema has it.
//!
//! A walk over a tool's schemas goes wherever a schema has to stand. It is as deep as the tree is, which has a bound.

use std::borrow::Cow;

use crate::code::Code;
use crate::keyword::{self, Form, Keyword};
use crate::node::{Member, Node, is_number, position};
use crate::type_words::{self, Meaning};

/// A tool of more bytes is not looked at.
pub const MAX_BYTES: usize = 1 << 20;

/// No more findings than these are told of one tool.
pub const MAX_FINDINGS: usize = 100;

/// A fault of a tool.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Finding {
    /// Its kind.
    pub code: Code,
    /// Where it stands, as a JSON pointer from the tool.
    pub place: String,
    /// What was done about it; `None` if it could mean several things, and was left as it is.
    pub repair: Option<&'static str>,
}

/// What was found in a tool, and what became of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Report<'t> {
    /// The tool, repaired where that was needed.
    pub tool: Cow<'t, str>,
    /// What was wrong.
    pub findings: Vec<Finding>,
}

/// Repairs a tool, a JSON object as `tools/list` has it.
///
/// A tool that needs nothing is given back as it is. So is a text that is no JSON object: that is not for this crate
/// to judge.
pub fn repair(tool: &str) -> Report<'_> {
    let mut walk = Walk { place: String::new(), findings: Vec::new(), is_changed: false };
    if tool.len() > MAX_BYTES {
        walk.leave(Code::S025);
        return Report { tool: Cow::Borrowed(tool), findings: walk.findings };
    }
    let Some(Node::Object(mut members)) = Node::parse(tool) else {
        return Report { tool: Cow::Borrowed(tool), findings: Vec::new() };
    };
    walk.tool(&mut members);
    let tool = match walk.is_changed {
        false => Cow::Borrowed(tool),
        true => {
            let mut written = String::with_capacity(tool.len() + 64);
            Node::Object(members).write(&mut written);
            Cow::Owned(written)
        }
    };
    Report { tool, findings: walk.findings }
}

/// What becomes of a member.
#[derive(PartialEq, Eq)]
enum Fate {
    Stays,
    Goes,
}

/// A walk over one tool.
struct Walk {
    /// Where it is, as a JSON pointer.
    place: String,
    findings: Vec<Finding>,
    is_changed: bool,
}

impl Walk {
    fn tool(&mut self, members: &mut Vec<Member<'_>>) {
        if position(members, "inputSchema").is_none() {
            members.push(Member::new("inputSchema", Node::word("null")));
        }
        let input = position(members, "inputSchema").expect("put there if it was missing");
        self.inside("inputSchema", |walk| walk.input(&mut members[input].value));
        let Some(output) = position(members, "outputSchema") else { return };
        let is_null = members[output].value.is_null();
        self.inside("outputSchema", |walk| match is_null {
            true => walk.mend(Code::S015, "taken out"),
            false => walk.schema(&mut members[output].value, Code::S015),
        });
        if is_null {
            members.remove(output);
        }
    }

    /// The schema of the arguments, which are always an object.
    fn input(&mut self, node: &mut Node<'_>) {
        if let Node::List(items) = node
            && let Some(members) = unflattened(items)
        {
            *node = Node::Object(members);
            self.mend(Code::S001, "the list of words is an object");
        }
        if !matches!(node, Node::Object(_)) {
            *node = Node::empty_object();
            self.mend(Code::S001, "put in: an object of any members");
            let Node::Object(members) = node else { return };
            return members.push(Member::new("type", Node::text("object")));
        }
        let Node::Object(members) = node else { return };
        self.root_type(members);
        self.keywords(members);
    }

    fn root_type(&mut self, members: &mut Vec<Member<'_>>) {
        let Some(at) = position(members, "type") else {
            members.insert(0, Member::new("type", Node::text("object")));
            return self.inside("type", |walk| walk.mend(Code::S002, "put in: `object`"));
        };
        let value = &mut members[at].value;
        if value.as_text().as_deref() == Some("object") {
            return;
        }
        // Arguments are an object whatever else the schema allows.
        let allows_object = type_words::allows_object(value);
        if allows_object {
            *value = Node::text("object");
        }
        self.inside("type", |walk| match allows_object {
            true => walk.mend(Code::S002, "is `object`"),
            false => walk.leave(Code::S002),
        });
    }

    /// What stands where a schema has to.
    fn schema(&mut self, node: &mut Node<'_>, code: Code) {
        self.make_schema(node, code);
        if let Node::Object(members) = node {
            self.keywords(members);
        }
    }

    /// Makes an object of what can only have been meant as one.
    fn make_schema(&mut self, node: &mut Node<'_>, code: Code) {
        let made = match node {
            Node::Object(_) => return,
            Node::Deep(_) => return self.leave(Code::S025),
            Node::Plain(_) if node.as_bool().is_some() => return,
            Node::Plain(_) if node.is_null() => {
                Some((Node::empty_object(), "null is an empty schema"))
            }
            Node::List(items) if items.is_empty() => {
                Some((Node::empty_object(), "the empty list is an empty schema"))
            }
            Node::List(items) => unflattened(items)
                .map(|members| (Node::Object(members), "the list of words is a schema")),
            Node::Plain(_) => None,
        };
        match made {
            Some((schema, repair)) => {
                *node = schema;
                self.mend(code, repair);
            }
            None => self.leave(code),
        }
    }

    /// The members of a schema.
    fn keywords(&mut self, members: &mut Vec<Member<'_>>) {
        self.exclusive_limits(members);
        self.tuple(members);
        let mut required = Vec::new();
        members.retain_mut(|member| {
            let Some(keyword) = keyword::find(&member.name()) else { return true };
            let value = &mut member.value;
            let fate =
                self.inside(keyword.name, |walk| walk.keyword(keyword, value, &mut required));
            fate == Fate::Stays
        });
        self.require(members, &required);
    }

    /// One keyword. Properties that say of themselves that they are required are added to `required`.
    fn keyword(
        &mut self,
        keyword: Keyword,
        value: &mut Node<'_>,
        required: &mut Vec<String>,
    ) -> Fate {
        if let Node::Deep(_) = value {
            if keyword.form != Form::Any {
                self.leave(Code::S025);
            }
            return Fate::Stays;
        }
        let code = keyword.code;
        match keyword.form {
            Form::Any => Fate::Stays,
            Form::Map => {
                let is_properties = keyword.name == "properties";
                self.map(value, code, required, is_properties);
                Fate::Stays
            }
            Form::Type => self.types(value),
            // Without `items` some clients refuse a list, and an empty schema says the same.
            Form::Schema if value.is_null() && keyword.name == "items" => {
                self.schema(value, code);
                Fate::Stays
            }
            _ if value.is_null() => self.goes(code, "null says nothing: taken out"),
            Form::Schema => {
                if !self.make_word(value, code) {
                    self.schema(value, code);
                }
                Fate::Stays
            }
            Form::Schemas => self.schemas(keyword, value),
            Form::Names => self.names(value),
            Form::List => self.judge(code, matches!(value, Node::List(_))),
            Form::Number | Form::Size => self.number(keyword, value),
            Form::Bool => {
                let is_word = self.make_word(value, code) || value.as_bool().is_some();
                self.judge(code, is_word)
            }
            Form::Text => self.judge(code, value.as_text().is_some()),
        }
    }

    /// Makes a yes or no of one that is written as a text. True if it was.
    fn make_word(&mut self, value: &mut Node<'_>, code: Code) -> bool {
        let word = match value.as_text().as_deref() {
            Some("true") => "true",
            Some("false") => "false",
            _ => return false,
        };
        self.put(value, code, Node::word(word), "is no text");
        true
    }

    /// Schemas by name.
    fn map(
        &mut self,
        node: &mut Node<'_>,
        code: Code,
        required: &mut Vec<String>,
        is_properties: bool,
    ) {
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
        if let Some((members, repair)) = made {
            *node = Node::Object(members);
            self.mend(code, repair);
        }
        let Node::Object(members) = node else { return self.leave(code) };
        for member in members {
            let name = member.name().into_owned();
            let schema = &mut member.value;
            self.inside(&name, |walk| {
                walk.make_schema(schema, Code::S005);
                let Node::Object(keywords) = schema else { return };
                if is_properties && walk.says_required(keywords) {
                    required.push(name.clone());
                }
                walk.keywords(keywords);
            });
        }
    }

    /// Whether a property says of itself that it is required, which is for its object to say; it does no more.
    fn says_required(&mut self, keywords: &mut Vec<Member<'_>>) -> bool {
        let Some(at) = position(keywords, "required") else { return false };
        let Some(is_required) = keywords[at].value.as_bool() else { return false };
        keywords.remove(at);
        self.inside("required", |walk| walk.mend(Code::S007, "is said by the object around it"));
        is_required
    }

    fn require(&mut self, members: &mut Vec<Member<'_>>, names: &[String]) {
        if names.is_empty() {
            return;
        }
        let at = position(members, "required").unwrap_or_else(|| {
            members.push(Member::new("required", Node::List(Vec::new())));
            members.len() - 1
        });
        let Node::List(known) = &mut members[at].value else { return };
        for name in names {
            if !known.iter().any(|it| it.as_text().as_deref() == Some(name)) {
                known.push(Node::text(name));
            }
        }
    }

    fn schemas(&mut self, keyword: Keyword, value: &mut Node<'_>) -> Fate {
        let Node::List(items) = value else { return self.judge(keyword.code, false) };
        if items.is_empty() {
            return match keyword.name {
                "allOf" | "prefixItems" => {
                    self.goes(keyword.code, "the empty list says nothing: taken out")
                }
                _ => self.judge(keyword.code, false),
            };
        }
        for (at, item) in items.iter_mut().enumerate() {
            self.inside(&at.to_string(), |walk| match item.is_null() {
                // It may have been meant as the type of null.
                true => walk.leave(keyword.code),
                false => walk.schema(item, keyword.code),
            });
        }
        Fate::Stays
    }

    fn types(&mut self, value: &mut Node<'_>) -> Fate {
        match type_words::meaning(value) {
            Meaning::Proper => {}
            Meaning::Types(types) => {
                self.put(
                    value,
                    Code::S008,
                    type_words::node_of(&types),
                    "in the words of JSON Schema",
                );
            }
            Meaning::Anything => return self.goes(Code::S008, "any type: taken out"),
            Meaning::Unknown => self.leave(Code::S008),
        }
        Fate::Stays
    }

    fn names(&mut self, value: &mut Node<'_>) -> Fate {
        match value {
            Node::Object(members) if members.is_empty() => {
                return self.goes(Code::S007, "no names: taken out");
            }
            Node::Plain(_) if value.as_bool().is_some() => {
                return self.goes(Code::S007, "says nothing here: taken out");
            }
            Node::Plain(_) if value.as_text().is_some() => {
                let name = value.clone();
                self.put(value, Code::S007, Node::List(vec![name]), "is a list of one name");
            }
            Node::List(items) if items.iter().all(|item| item.as_text().is_some()) => {
                let mut seen = std::collections::HashSet::new();
                let before = items.len();
                items.retain(|item| seen.insert(item.as_text().unwrap_or_default().into_owned()));
                if items.len() < before {
                    self.mend(Code::S007, "each name stands once");
                }
            }
            _ => self.leave(Code::S007),
        }
        Fate::Stays
    }

    /// A number, or one that is written as a text.
    fn number(&mut self, keyword: Keyword, value: &mut Node<'_>) -> Fate {
        let is_size = keyword.form == Form::Size;
        let fits = |number: &str| match is_size {
            // A fraction may be a whole number too, which is for a validator to say.
            true => !number.starts_with('-'),
            false => true,
        };
        if let Some(number) = value.as_number() {
            return self.judge(keyword.code, fits(number));
        }
        let number = value.as_text().map(|text| text.trim().to_owned());
        match number.filter(|number| is_number(number) && fits(number)) {
            Some(number) => {
                self.put(value, keyword.code, Node::Plain(Cow::Owned(number)), "is a number");
                Fate::Stays
            }
            None => self.judge(keyword.code, false),
        }
    }

    /// A limit that is exclusive or not, as an older draft has it.
    fn exclusive_limits(&mut self, members: &mut Vec<Member<'_>>) {
        for (exclusive, limit) in [("exclusiveMinimum", "minimum"), ("exclusiveMaximum", "maximum")]
        {
            let Some(at) = position(members, exclusive) else { continue };
            let Some(is_exclusive) = members[at].value.as_bool() else { continue };
            let limit = position(members, limit).filter(|_| is_exclusive);
            match limit.filter(|limit| members[*limit].value.as_number().is_some()) {
                Some(limit) => {
                    members[at].value = members[limit].value.clone();
                    members.remove(limit);
                }
                None => drop(members.remove(at)),
            }
            self.inside(exclusive, |walk| walk.mend(Code::S009, "is the limit itself"));
        }
    }

    /// The schemas of single items, which an older draft calls `items`.
    fn tuple(&mut self, members: &mut [Member<'_>]) {
        let Some(at) = position(members, "items") else { return };
        let Node::List(items) = &members[at].value else { return };
        let is_schema =
            |item: &Node<'_>| matches!(item, Node::Object(_)) || item.as_bool().is_some();
        let is_tuple = !items.is_empty() && items.iter().all(is_schema);
        if !is_tuple || position(members, "prefixItems").is_some() {
            return;
        }
        members[at].rename("prefixItems");
        if let Some(rest) = position(members, "additionalItems") {
            members[rest].rename("items");
        }
        self.inside("items", |walk| walk.mend(Code::S005, "is `prefixItems`"));
    }

    /// Goes to a member, and comes back.
    fn inside<T>(&mut self, name: &str, go: impl FnOnce(&mut Self) -> T) -> T {
        let before = self.place.len();
        self.place.push('/');
        for letter in name.chars() {
            match letter {
                '~' => self.place.push_str("~0"),
                '/' => self.place.push_str("~1"),
                letter => self.place.push(letter),
            }
        }
        let gone = go(self);
        self.place.truncate(before);
        gone
    }

    fn put<'t>(&mut self, value: &mut Node<'t>, code: Code, new: Node<'t>, repair: &'static str) {
        *value = new;
        self.mend(code, repair);
    }

    fn goes(&mut self, code: Code, repair: &'static str) -> Fate {
        self.mend(code, repair);
        Fate::Goes
    }

    /// Notes a fault that cannot be repaired, unless there is none.
    fn judge(&mut self, code: Code, is_well: bool) -> Fate {
        if !is_well {
            self.leave(code);
        }
        Fate::Stays
    }

    fn mend(&mut self, code: Code, repair: &'static str) {
        self.is_changed = true;
        self.find(code, Some(repair));
    }

    fn leave(&mut self, code: Code) {
        self.find(code, None);
    }

    fn find(&mut self, code: Code, repair: Option<&'static str>) {
        if self.findings.len() < MAX_FINDINGS {
            self.findings.push(Finding { code, place: self.place.clone(), repair });
        }
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

#[cfg(test)]
mod tests;
