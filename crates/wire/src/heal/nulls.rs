//! Null where a member should be absent (H16). Which members may be absent, the protocol's schema says; they are found
//! by the method, and nothing else is looked into: no arguments, no structured content, no `_meta`, no schemas, no data.

use std::ops::Range;

use crate::json::{elements, entries, find};
use crate::message::{Message, string_value};
use crate::method;
use crate::rewrite::Rewrite;
use crate::scan::{Member, Word};
use crate::slot::Slot;

/// An object of the protocol: which of its members may be absent and not null, and which hold further objects.
#[derive(Debug)]
pub(crate) struct ObjectForm {
    optional: &'static [&'static str],
    inside: &'static [(&'static str, Inside)],
}

/// What a member holds.
#[derive(Debug)]
enum Inside {
    /// An object.
    One(&'static ObjectForm),
    /// A list of objects.
    Each(&'static ObjectForm),
    /// A block of content, or a list of them: each has a form by its type.
    Blocks,
    /// What a server can do. Every capability, and every promise of one, may be absent.
    Promises,
}

use Inside::{Blocks, Each, One, Promises};

const fn form(
    optional: &'static [&'static str],
    inside: &'static [(&'static str, Inside)],
) -> ObjectForm {
    ObjectForm { optional, inside }
}

/// What every result, and the parameters of every message, may have.
static ANY: ObjectForm = form(&["_meta"], &[]);

static ICON: ObjectForm = form(&["mimeType", "sizes", "theme"], &[]);
static SERVER: ObjectForm =
    form(&["title", "description", "websiteUrl", "icons"], &[("icons", Each(&ICON))]);
static GREETING: ObjectForm =
    form(&["_meta", "instructions"], &[("capabilities", Promises), ("serverInfo", One(&SERVER))]);

static HINTS: ObjectForm =
    form(&["title", "readOnlyHint", "destructiveHint", "idempotentHint", "openWorldHint"], &[]);
static EXECUTION: ObjectForm = form(&["taskSupport"], &[]);
static TOOL: ObjectForm = form(
    &["_meta", "title", "description", "annotations", "icons", "execution", "outputSchema"],
    &[("annotations", One(&HINTS)), ("icons", Each(&ICON)), ("execution", One(&EXECUTION))],
);
static TOOLS: ObjectForm = form(&["_meta", "nextCursor"], &[("tools", Each(&TOOL))]);

static PROMPT_ARGUMENT: ObjectForm = form(&["title", "description", "required"], &[]);
static PROMPT: ObjectForm = form(
    &["_meta", "title", "description", "arguments", "icons"],
    &[("arguments", Each(&PROMPT_ARGUMENT)), ("icons", Each(&ICON))],
);
static PROMPTS: ObjectForm = form(&["_meta", "nextCursor"], &[("prompts", Each(&PROMPT))]);
static MESSAGE: ObjectForm = form(&["_meta"], &[("content", Blocks)]);
static MESSAGES: ObjectForm = form(&["_meta", "description"], &[("messages", Each(&MESSAGE))]);

static ANNOTATIONS: ObjectForm = form(&["audience", "priority", "lastModified"], &[]);
static RESOURCE: ObjectForm = form(
    &["_meta", "title", "description", "mimeType", "size", "annotations", "icons"],
    &[("annotations", One(&ANNOTATIONS)), ("icons", Each(&ICON))],
);
static RESOURCES: ObjectForm = form(&["_meta", "nextCursor"], &[("resources", Each(&RESOURCE))]);
static TEMPLATES: ObjectForm =
    form(&["_meta", "nextCursor"], &[("resourceTemplates", Each(&RESOURCE))]);
/// It has a text or a blob.
static CONTENTS: ObjectForm = form(&["_meta", "mimeType", "text", "blob"], &[]);
static READ: ObjectForm = form(&["_meta"], &[("contents", Each(&CONTENTS))]);

static BLOCK: ObjectForm = form(&["_meta", "annotations"], &[("annotations", One(&ANNOTATIONS))]);
static EMBEDDED: ObjectForm = form(
    &["_meta", "annotations"],
    &[("annotations", One(&ANNOTATIONS)), ("resource", One(&CONTENTS))],
);
static TOOL_RESULT: ObjectForm =
    form(&["_meta", "structuredContent", "isError"], &[("content", Blocks)]);

static COMPLETION: ObjectForm = form(&["total", "hasMore"], &[]);
static COMPLETED: ObjectForm = form(&["_meta"], &[("completion", One(&COMPLETION))]);

static PROGRESS: ObjectForm = form(&["_meta", "total", "message"], &[]);
static LOG: ObjectForm = form(&["_meta", "logger"], &[]);
static CANCELLED: ObjectForm = form(&["_meta", "reason"], &[]);
static MODEL_HINT: ObjectForm = form(&["name"], &[]);
static PREFERENCES: ObjectForm = form(
    &["hints", "costPriority", "speedPriority", "intelligencePriority"],
    &[("hints", Each(&MODEL_HINT))],
);
static SAMPLING: ObjectForm = form(
    &[
        "_meta",
        "modelPreferences",
        "systemPrompt",
        "includeContext",
        "temperature",
        "stopSequences",
        "metadata",
        "tools",
        "toolChoice",
        "task",
    ],
    &[
        ("messages", Each(&MESSAGE)),
        ("modelPreferences", One(&PREFERENCES)),
        ("tools", Each(&TOOL)),
    ],
);
static ELICITATION: ObjectForm = form(&["_meta", "mode", "task"], &[]);

/// The form of the result of a request.
pub(crate) fn result_of(method: &str) -> &'static ObjectForm {
    match method {
        method::INITIALIZE | method::DISCOVER => &GREETING,
        method::LIST_TOOLS => &TOOLS,
        method::CALL_TOOL => &TOOL_RESULT,
        method::LIST_PROMPTS => &PROMPTS,
        method::GET_PROMPT => &MESSAGES,
        method::LIST_RESOURCES => &RESOURCES,
        method::LIST_TEMPLATES => &TEMPLATES,
        method::READ_RESOURCE => &READ,
        method::COMPLETE => &COMPLETED,
        _ => &ANY,
    }
}

/// The form of the parameters of what a server says by itself.
fn params_of(method: &str) -> &'static ObjectForm {
    match method {
        method::PROGRESS => &PROGRESS,
        method::LOG => &LOG,
        method::CANCELLED => &CANCELLED,
        method::SAMPLE => &SAMPLING,
        method::ELICIT => &ELICITATION,
        _ => &ANY,
    }
}

/// The form of a block of content, by its type.
fn block_of(block: &[u8]) -> &'static ObjectForm {
    match find(block, "type").and_then(string_value).as_deref() {
        Some("resource_link") => &RESOURCE,
        Some("resource") => &EMBEDDED,
        Some("tool_result") => &TOOL_RESULT,
        _ => &BLOCK,
    }
}

/// The members of an answer that are null and should be absent.
pub(crate) fn in_result(answer: &Message, form: &ObjectForm) -> Vec<Member> {
    found(answer, Slot::Result, form)
}

/// The same of what a server says by itself. Parameters that are null are such a member, too.
pub(crate) fn in_params(message: &Message) -> Vec<Member> {
    // Most messages have no null at all.
    if !message.says(Word::Null) {
        return Vec::new();
    }
    match message.member(Slot::Params) {
        Some(member) if message.raw(Slot::Params) == Some(b"null") => vec![member],
        _ => found(message, Slot::Params, params_of(&message.method())),
    }
}

/// The message without these members.
pub(crate) fn without(message: &Message, members: Vec<Member>) -> Message {
    Rewrite::new(message.clone()).remove_all(members).into_message()
}

fn found(message: &Message, slot: Slot, form: &ObjectForm) -> Vec<Member> {
    let Some(member) = message.member(slot).filter(|_| message.says(Word::Null)) else {
        return Vec::new();
    };
    let mut search = Search { text: message.text(), found: Vec::new() };
    search.object(member.start as usize..member.end as usize, form);
    search.found
}

struct Search<'t> {
    text: &'t [u8],
    found: Vec<Member>,
}

impl Search<'_> {
    fn object(&mut self, object: Range<usize>, form: &ObjectForm) {
        for entry in entries(self.text, object) {
            let Some(name) = string_value(&self.text[entry.key.clone()]) else { continue };
            let value = entry.value.clone();
            if &self.text[value.clone()] == b"null" {
                if form.optional.contains(&name.as_ref()) {
                    self.take(entry.key.start, value);
                }
                continue;
            }
            match form.inside.iter().find(|(it, _)| *it == name).map(|(_, inside)| inside) {
                Some(One(form)) => self.object(value, form),
                Some(Each(form)) => {
                    elements(self.text, value).for_each(|item| self.object(item, form));
                }
                Some(Blocks) if self.text.get(value.start) == Some(&b'[') => {
                    elements(self.text, value).for_each(|block| self.block(block));
                }
                Some(Blocks) => self.block(value),
                Some(Promises) => self.promises(value),
                None => {}
            }
        }
    }

    fn block(&mut self, block: Range<usize>) {
        let form = block_of(&self.text[block.clone()]);
        self.object(block, form);
    }

    fn promises(&mut self, capabilities: Range<usize>) {
        for capability in entries(self.text, capabilities) {
            let inside = entries(self.text, capability.value.clone());
            for entry in std::iter::once(capability).chain(inside) {
                if &self.text[entry.value.clone()] == b"null" {
                    self.take(entry.key.start, entry.value);
                }
            }
        }
    }

    fn take(&mut self, key: usize, value: Range<usize>) {
        let (key, start, end) = (key as u32, value.start as u32, value.end as u32);
        self.found.push(Member { key, start, end });
    }
}
