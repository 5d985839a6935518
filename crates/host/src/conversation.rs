//! An MCP server that has tools and nothing else, as plain decisions: a message in, what to do out.
//!
//! It speaks both eras. The bridge process and a toolset that is served directly share it, so that a client
//! sees no difference. I/O and the calls themselves are left to them.

use bytes::Bytes;
use pontoon_wire::error::{ErrorObject, code};
use pontoon_wire::{Era, Kind, Message, Revision, Slot, envelope, is_id, json, method, quoted};

/// What a server offers.
pub(crate) struct ServerOffer<'a> {
    /// How it names itself.
    pub(crate) name: &'a str,
    /// Gives its tools: a JSON array, as in the answer to `tools/list`.
    pub(crate) tools: &'a dyn Fn() -> String,
}

/// Who asked, and how the answer has to look.
#[derive(Debug, Clone)]
pub(crate) struct Asker {
    /// The id of the request, as its JSON text.
    pub(crate) id: Bytes,
    pub(crate) era: Era,
    /// Where progress is wanted.
    pub(crate) progress_token: Option<Bytes>,
}

/// What is to be done with a message.
#[derive(Debug)]
pub(crate) enum Step {
    /// Send this.
    Answer(String),
    /// Call a tool.
    Call(Box<ToolRequest>),
    /// Give up the call that has this id.
    Cancel(Bytes),
    /// Nothing.
    Nothing,
}

/// A call of a tool.
#[derive(Debug)]
pub(crate) struct ToolRequest {
    pub(crate) asker: Asker,
    message: Message,
}

impl ToolRequest {
    /// The name of the tool.
    pub(crate) fn name(&self) -> String {
        self.message.string(Slot::Name).unwrap_or_default().into_owned()
    }

    /// The arguments: a JSON object.
    pub(crate) fn arguments(&self) -> &[u8] {
        self.message.raw(Slot::Arguments).filter(|raw| *raw != b"null").unwrap_or(b"{}")
    }

    /// What the client says about the call: a JSON object.
    pub(crate) fn meta(&self) -> Option<&[u8]> {
        self.message.raw(Slot::Meta)
    }
}

/// A conversation with one client.
#[derive(Debug, Default)]
pub(crate) struct Conversation {
    /// A legacy client has opened it, and hears of changes without asking.
    is_legacy: bool,
    /// The ids of subscriptions to changes of the list.
    listens: Vec<Bytes>,
}

/// How many subscriptions one client may have.
const MAX_LISTENS: usize = 64;

impl Conversation {
    /// What to do with a message of the client's.
    pub(crate) fn take(&mut self, message: Message, offer: &ServerOffer<'_>) -> Step {
        match message.kind() {
            Kind::Request => {}
            Kind::Notification => return self.notified(&message),
            // The server asks nothing, so no request of its own is answered.
            Kind::Answer => return Step::Nothing,
            Kind::Unclear => {
                let error =
                    ErrorObject::new(code::INVALID_REQUEST, "neither a request nor an answer");
                let id = message.raw(Slot::Id).filter(|id| is_id(id)).unwrap_or(b"null");
                return Step::Answer(error.answer(&text(id)));
            }
        }
        let id = message.copy(Slot::Id).unwrap_or_default();
        if !is_id(&id) {
            let error = ErrorObject::new(
                code::INVALID_REQUEST,
                "`id` has to be a string or a whole number",
            );
            return Step::Answer(error.answer("null"));
        }
        let era = match message.string(Slot::MetaVersion) {
            None => Era::Legacy,
            Some(version) if version == Revision::NEWEST_MODERN.as_str() => Era::Modern,
            Some(version) => return Step::Answer(unsupported(&version).answer(&text(&id))),
        };
        let asker = Asker { id, era, progress_token: message.copy(Slot::MetaProgressToken) };
        self.asked(asker, message, offer)
    }

    fn asked(&mut self, asker: Asker, message: Message, offer: &ServerOffer<'_>) -> Step {
        let result = match message.method().as_ref() {
            method::INITIALIZE => {
                self.is_legacy = true;
                let asked = message.string(Slot::ProtocolVersion).unwrap_or_default();
                let version = Revision::negotiate(&asked);
                format!(
                    "{{\"protocolVersion\":\"{version}\",\"capabilities\":{CAPABILITIES},\"serverInfo\":{}}}",
                    offer.info()
                )
            }
            method::DISCOVER => format!(
                "{{\"supportedVersions\":[\"{}\"],\"capabilities\":{CAPABILITIES},\"ttlMs\":0,\
                 \"cacheScope\":\"private\",\"_meta\":{{{}:{}}}}}",
                Revision::NEWEST_MODERN,
                quoted(Slot::ResultServerInfo.name()),
                offer.info()
            ),
            method::PING | method::SET_LEVEL => "{}".to_owned(),
            method::LIST_TOOLS if message.raw(Slot::Cursor).is_some_and(|it| it != b"null") => {
                let error = ErrorObject::new(code::INVALID_PARAMS, "the list has only one page");
                return asker.refuse(&error);
            }
            method::LIST_TOOLS => match asker.era {
                Era::Legacy => format!("{{\"tools\":{}}}", (offer.tools)()),
                Era::Modern => {
                    format!(
                        "{{\"ttlMs\":0,\"cacheScope\":\"private\",\"tools\":{}}}",
                        (offer.tools)()
                    )
                }
            },
            method::CALL_TOOL => return called(asker, message),
            method::LISTEN => return self.listened(asker, &message),
            other => {
                let error =
                    ErrorObject::new(code::METHOD_NOT_FOUND, format!("there is no `{other}` here"));
                return asker.refuse(&error);
            }
        };
        Step::Answer(text(&asker.answer(result.as_bytes())))
    }

    fn notified(&mut self, message: &Message) -> Step {
        if message.method() != method::CANCELLED {
            return Step::Nothing;
        }
        let Some(id) = message.copy(Slot::RequestId) else { return Step::Nothing };
        self.listens.retain(|listen| *listen != id);
        Step::Cancel(id)
    }

    fn listened(&mut self, asker: Asker, message: &Message) -> Step {
        let filter = message.raw(Slot::Notifications).unwrap_or(b"{}");
        let wants_tools = json::find(filter, "toolsListChanged") == Some(b"true");
        if self.listens.len() >= MAX_LISTENS {
            let what = format!("{MAX_LISTENS} subscriptions are open: cancel some of them");
            return asker.refuse(&ErrorObject::new(code::BUSY, what));
        }
        let granted = if wants_tools { "{\"toolsListChanged\":true}" } else { "{}" };
        let meta = subscription(&asker.id);
        let params = format!("{{{meta},\"notifications\":{granted}}}");
        let note = envelope::notification(method::ACKNOWLEDGED, &params);
        if wants_tools {
            self.listens.push(asker.id);
        }
        Step::Answer(note)
    }

    /// What to send when the tools have changed.
    pub(crate) fn changed(&self) -> Vec<String> {
        let changed = method::TOOLS_CHANGED;
        let legacy = self.is_legacy.then(|| envelope::plain_notification(changed));
        let modern = self.listens.iter().map(|listen| {
            envelope::notification(changed, &format!("{{{}}}", subscription(listen)))
        });
        legacy.into_iter().chain(modern).collect()
    }
}

const CAPABILITIES: &str = "{\"tools\":{\"listChanged\":true}}";

impl ServerOffer<'_> {
    fn info(&self) -> String {
        let version = quoted(env!("CARGO_PKG_VERSION"));
        format!("{{\"name\":{},\"version\":{version}}}", quoted(self.name))
    }
}

impl Asker {
    /// The answer with this result, a JSON object.
    pub(crate) fn answer(&self, result: &[u8]) -> Vec<u8> {
        let is_typed = json::find(result, Slot::ResultType.name()).is_some();
        let member: &[u8] = match self.era {
            Era::Modern if !is_typed => b"\"resultType\":\"complete\"",
            _ => b"",
        };
        let has_members = json::entries(result, 0..result.len()).next().is_some();
        let comma: &[u8] = if has_members && !member.is_empty() { b"," } else { b"" };
        let (brace, rest) = result.split_at(1);
        let pieces: [&[u8]; 8] = [
            b"{\"jsonrpc\":\"2.0\",\"id\":",
            &self.id,
            b",\"result\":",
            brace,
            member,
            comma,
            rest,
            b"}",
        ];
        pieces.concat()
    }

    /// The answer that a tool failed: a result, for clients keep only the message of an error.
    pub(crate) fn fail(&self, kind: &str, message: &str) -> Vec<u8> {
        self.answer(failure(kind, message).as_bytes())
    }

    /// News of how far the call is, if they are wanted; `members` like `"progress":1,"total":2`.
    pub(crate) fn progress(&self, members: &str) -> Option<String> {
        let token = text(self.progress_token.as_ref()?);
        let params = format!("{{\"progressToken\":{token},{members}}}");
        Some(envelope::notification(method::PROGRESS, &params))
    }

    fn refuse(&self, error: &ErrorObject) -> Step {
        Step::Answer(error.answer(&text(&self.id)))
    }
}

/// The id in a message that is not a proper one, so that its sender hears of it.
pub(crate) fn id_in(message: &[u8]) -> Option<String> {
    #[derive(serde::Deserialize)]
    struct OnlyId<'m> {
        #[serde(borrow)]
        id: Option<&'m serde_json::value::RawValue>,
    }
    let id = serde_json::from_slice::<OnlyId<'_>>(message).ok()?.id?.get();
    is_id(id.as_bytes()).then(|| id.to_owned())
}

/// The result of a tool that failed.
pub(crate) fn failure(kind: &str, message: &str) -> String {
    let said = quoted(&format!("{kind}: {message}"));
    format!("{{\"content\":[{{\"type\":\"text\",\"text\":{said}}}],\"isError\":true}}")
}

fn called(asker: Asker, message: Message) -> Step {
    if message.string(Slot::Name).is_none() {
        return asker.refuse(&ErrorObject::new(code::INVALID_PARAMS, "`name` has to be a string"));
    }
    match message.raw(Slot::Arguments) {
        None | Some(b"null") => {}
        Some(raw) if raw.first() == Some(&b'{') => {}
        // A client that has none to give may send an empty list.
        Some(raw)
            if json::elements(raw, 0..raw.len()).next().is_none() && raw.first() == Some(&b'[') =>
        {
            let message =
                pontoon_wire::Rewrite::new(message).replace(Slot::Arguments, "{}").into_message();
            return Step::Call(Box::new(ToolRequest { asker, message }));
        }
        Some(_) => {
            let error = ErrorObject::new(code::INVALID_PARAMS, "`arguments` has to be an object");
            return asker.refuse(&error);
        }
    }
    Step::Call(Box::new(ToolRequest { asker, message }))
}

fn unsupported(version: &str) -> ErrorObject {
    let supported: Vec<_> = Revision::ALL.iter().map(|it| quoted(it.as_str())).collect();
    let data =
        format!("{{\"supported\":[{}],\"requested\":{}}}", supported.join(","), quoted(version));
    let what = format!("protocol version {version} is not spoken here");
    ErrorObject::new(code::UNSUPPORTED_VERSION, what).with_data(data)
}

/// Says which subscription a note is for: a member of its parameters.
fn subscription(id: &[u8]) -> String {
    format!("\"_meta\":{{{}:{}}}", quoted(Slot::MetaSubscriptionId.name()), text(id))
}

fn text(raw: &[u8]) -> String {
    String::from_utf8_lossy(raw).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    const OFFER: ServerOffer<'_> =
        ServerOffer { name: "here", tools: &|| r#"[{"name":"add"}]"#.to_owned() };

    fn take(conversation: &mut Conversation, message: &str) -> Step {
        conversation.take(Message::parse(message.as_bytes()).unwrap(), &OFFER)
    }

    fn check(message: &str, expected: &str) {
        match take(&mut Conversation::default(), message) {
            Step::Answer(answer) => {
                assert!(answer.contains(expected), "{answer}");
                Message::parse(answer.as_bytes()).unwrap();
            }
            other => panic!("{message}: {other:?}"),
        }
    }

    const MODERN: &str = r#""_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28"}"#;

    #[test]
    fn a_legacy_client_opens_with_the_version_it_speaks() {
        for (asked, given) in
            [("2024-11-05", "2024-11-05"), ("2026-07-28", "2025-11-25"), ("x", "2025-11-25")]
        {
            let ask = format!(
                r#"{{"id":0,"method":"initialize","params":{{"protocolVersion":"{asked}"}}}}"#
            );
            check(&ask, &format!(r#""id":0,"result":{{"protocolVersion":"{given}""#));
        }
        check(
            r#"{"id":1,"method":"tools/list"}"#,
            r#""id":1,"result":{"tools":[{"name":"add"}]}}"#,
        );
        check(r#"{"id":1,"method":"ping"}"#, r#""result":{}}"#);
    }

    #[test]
    fn a_modern_client_needs_no_opening() {
        let probe = format!(r#"{{"id":"p-1","method":"server/discover","params":{{{MODERN}}}}}"#);
        check(
            &probe,
            r#""id":"p-1","result":{"resultType":"complete","supportedVersions":["2026-07-28"]"#,
        );
        let list = format!(r#"{{"id":1,"method":"tools/list","params":{{{MODERN}}}}}"#);
        check(
            &list,
            r#""result":{"resultType":"complete","ttlMs":0,"cacheScope":"private","tools":[{"#,
        );
        check(&list.replace("2026-07-28", "2099-01-01"), "-32022");
    }

    #[test]
    fn what_cannot_be_answered_is_refused_with_its_id() {
        check(r#"{"id":7,"method":"resources/list"}"#, r#""id":7,"error":{"code":-32601"#);
        check(r#"{"id":7,"method":"tools/call","params":{"arguments":{}}}"#, "`name` has to be");
        check(
            r#"{"id":7,"method":"tools/call","params":{"name":"a","arguments":3}}"#,
            "`arguments` has",
        );
        check(r#"{"id":7,"method":"tools/list","params":{"cursor":"x"}}"#, "only one page");
        check(r#"{"id":[],"method":"ping"}"#, r#""id":null,"error":{"code":-32600"#);
        check(r#"{"id":7}"#, r#""id":7,"error":{"code":-32600"#);
    }

    #[test]
    fn the_id_is_found_in_what_is_no_message() {
        for strange in [r#"{"id":7,"x":"\ud800"}"#, r#"{"x":1,"x":2,"id":7}"#] {
            assert_eq!(id_in(strange.as_bytes()).as_deref(), Some("7"), "{strange}");
        }
        let deep = format!(r#"{{"x":{}1{},"id":"a"}}"#, "[".repeat(500), "]".repeat(500));
        assert_eq!(id_in(deep.as_bytes()).as_deref(), Some("\"a\""));
        assert_eq!(id_in(b"nonsense"), None);
        assert_eq!(id_in(br#"{"id":[]}"#), None);
    }

    #[test]
    fn what_wants_no_answer_gets_none() {
        for silent in [
            r#"{"method":"notifications/initialized"}"#,
            r#"{"method":"notifications/cancelled","params":{}}"#,
            r#"{"method":"who/knows"}"#,
            r#"{"id":1,"result":{}}"#,
        ] {
            assert!(
                matches!(take(&mut Conversation::default(), silent), Step::Nothing),
                "{silent}"
            );
        }
    }

    #[test]
    fn a_call_carries_what_the_client_said() {
        let call = r#"{"id":2,"method":"tools/call","params":{"name":"a\u0064d","arguments":{"a":1},"_meta":{"progressToken":"t"}}}"#;
        let Step::Call(request) = take(&mut Conversation::default(), call) else {
            panic!("a call")
        };
        assert_eq!(
            (request.name().as_str(), request.arguments()),
            ("add", br#"{"a":1}"#.as_slice())
        );
        let note = request.asker.progress("\"progress\":1").unwrap();
        assert!(note.ends_with(r#""params":{"progressToken":"t","progress":1}}"#), "{note}");
        for none in ["", r#","arguments":null"#, r#","arguments":[]"#] {
            let call =
                format!(r#"{{"id":2,"method":"tools/call","params":{{"name":"add"{none}}}}}"#);
            let Step::Call(request) = take(&mut Conversation::default(), &call) else {
                panic!("{call}")
            };
            assert_eq!(request.arguments(), b"{}", "{call}");
            assert!(request.asker.progress("").is_none());
        }
    }

    #[test]
    fn each_client_hears_of_changes_in_its_own_words() {
        let mut client = Conversation::default();
        assert!(client.changed().is_empty());
        take(&mut client, r#"{"id":0,"method":"initialize"}"#);
        let listen = format!(
            r#"{{"id":"listen:0","method":"subscriptions/listen","params":{{{MODERN},"notifications":{{"toolsListChanged":true}}}}}}"#
        );
        let Step::Answer(note) = take(&mut client, &listen) else { panic!("acknowledged") };
        assert!(
            note.contains(
                r#"subscriptionId":"listen:0"},"notifications":{"toolsListChanged":true}"#
            ),
            "{note}"
        );
        assert_eq!(client.changed().len(), 2);
        let cancel = r#"{"method":"notifications/cancelled","params":{"requestId":"listen:0"}}"#;
        assert!(matches!(take(&mut client, cancel), Step::Cancel(_)));
        assert_eq!(client.changed().len(), 1);
    }

    #[test]
    fn a_result_is_passed_on_as_it_is() {
        let asker = |era| Asker { id: Bytes::from_static(b"\"x\""), era, progress_token: None };
        let check = |era, result: &str, expected: &str| {
            let answer = String::from_utf8(asker(era).answer(result.as_bytes())).unwrap();
            assert_eq!(answer, format!(r#"{{"jsonrpc":"2.0","id":"x","result":{expected}}}"#));
        };
        check(Era::Legacy, r#"{"n":1e400}"#, r#"{"n":1e400}"#);
        check(Era::Modern, r#"{"n":1e400}"#, r#"{"resultType":"complete","n":1e400}"#);
        check(Era::Modern, "{}", r#"{"resultType":"complete"}"#);
        check(Era::Modern, r#"{"resultType":"x"}"#, r#"{"resultType":"x"}"#);
    }
}
