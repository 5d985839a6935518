//! Files in an answer: what a call made is named in its result, as an addition and nothing else.
//!
//! One text for the model and the person, in a `resource` block because a further `text` block would
//! disturb clients that compare texts with `structuredContent`; and for clients that know it one
//! `resource_link` for each file. Plain functions over texts.

use std::fmt::Write;
use std::ops::Range;

use base64::Engine;
use pontoon_wire::{Message, Revision, Rewrite, Slot, Word, json, quoted, string_value};

use crate::jobs::Made;

/// A file that can be fetched.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Offer {
    /// Its name, with `/` between folders.
    pub name: String,
    /// Its size in bytes.
    pub size: u64,
    /// Its media type.
    pub mime: &'static str,
    /// Where a person fetches it.
    pub url: String,
    /// Where the client itself fetches it: an absolute address.
    pub uri: String,
    /// Where a person fetches what later calls of the conversation make of it.
    pub newest: Option<String>,
}

/// The answer with the files named in it, in so many blocks at its end; so many more there are that are not, and these
/// were too large to be kept.
pub fn with_files(
    answer: Message,
    offers: &[Offer],
    more: usize,
    too_large: &[Made],
    expires: &str,
    revision: Revision,
) -> (Message, usize) {
    if !answer.has(Slot::Result) || (offers.is_empty() && too_large.is_empty()) {
        return (answer, 0);
    }
    let mut text = match offers {
        [] => String::new(),
        _ => "Files made by this call. Give the links to the user:".to_owned(),
    };
    for offer in offers {
        let (size, url) = (readable(offer.size), &offer.url);
        // Writing to a string cannot fail.
        let _ = write!(text, "\n- [{}]({url}) ({size}, until {expires})", label(&offer.name));
        if let Some(newest) = &offer.newest {
            let _ = write!(text, ", or [always its newest version]({newest})");
        }
    }
    if more > 0 {
        let _ = write!(text, "\n- and {more} more, which are not named here");
    }
    if !too_large.is_empty() {
        let gap = if text.is_empty() { "" } else { "\n\n" };
        let _ =
            write!(text, "{gap}Files that are too large to be fetched, and stay with the server:");
    }
    for made in too_large {
        let _ = write!(text, "\n- {} ({})", label(&made.path), readable(made.size));
    }
    // An address that can be fetched, and that no file here has.
    let uri = offers.first().map(|first| format!("{}#files", first.uri));
    let mut blocks = format!(
        "{{\"type\":\"resource\",\"resource\":{{\"uri\":{},\"mimeType\":\"text/markdown\",\"text\":{}}}}}",
        quoted(uri.as_deref().unwrap_or("about:blank")),
        quoted(&text)
    );
    let mut count = 1;
    if revision >= Revision::V2025_06_18 {
        count += offers.len();
        for offer in offers {
            let _ = write!(
                blocks,
                ",{{\"type\":\"resource_link\",\"uri\":{},\"name\":{},\"mimeType\":{},\"size\":{}}}",
                quoted(&offer.uri),
                quoted(&offer.name),
                quoted(offer.mime),
                offer.size
            );
        }
    }
    match answer.raw(Slot::ResultContent).and_then(<[u8]>::first) {
        Some(b'[') => {
            let changed = Rewrite::new(answer).append_to(Slot::ResultContent, &blocks);
            (changed.into_message(), count)
        }
        // A result whose content is something else is not ours to mend.
        Some(_) => (answer, 0),
        None => {
            let content = format!("\"content\":[{blocks}]");
            let changed = Rewrite::new(answer).insert_into(Slot::Result, &content);
            (changed.into_message(), count)
        }
    }
}

/// A name as the text of a Markdown link.
pub(crate) fn label(name: &str) -> String {
    name.replace('\\', "\\\\").replace('[', "\\[").replace(']', "\\]")
}

/// A size as a person says it.
fn readable(bytes: u64) -> String {
    #[expect(clippy::cast_precision_loss, reason = "one digit is shown")]
    let of = |unit: u64| bytes as f64 / unit as f64;
    match bytes {
        0..1_000 => format!("{bytes} bytes"),
        1_000..1_000_000 => format!("{:.1} kB", of(1_000)),
        1_000_000..1_000_000_000 => format!("{:.1} MB", of(1_000_000)),
        _ => format!("{:.1} GB", of(1_000_000_000)),
    }
}

/// A file that stands in the result itself, as an embedded resource.
#[derive(Debug, PartialEq, Eq)]
pub struct Embedded {
    /// The last part of its address.
    pub name: String,
    /// Its contents in base64: a JSON string, as it stands in the message.
    pub blob: Range<usize>,
}

impl Embedded {
    /// Its bytes, out of the text of the message it was found in. `None` if it is no base64.
    pub fn bytes(&self, text: &[u8]) -> Option<Vec<u8>> {
        // Some write every `/` as `\/`.
        let blob = string_value(&text[self.blob.clone()])?;
        base64::engine::general_purpose::STANDARD.decode(blob.as_bytes()).ok()
    }
}

/// The blobs among the blocks of a result.
pub fn embedded(answer: &Message) -> Vec<Embedded> {
    let Some(content) = answer.raw(Slot::ResultContent).filter(|raw| raw.first() == Some(&b'['))
    else {
        return Vec::new();
    };
    if !answer.says(Word::Blob) {
        return Vec::new();
    }
    let text = answer.text();
    let offset = |part: &[u8]| part.as_ptr() as usize - text.as_ptr() as usize;
    let mut found = Vec::new();
    for range in json::elements(content, 0..content.len()) {
        let block = &content[range];
        let resource = json::find(block, "resource").filter(|raw| raw.first() == Some(&b'{'));
        let Some(resource) = resource else { continue };
        let blob = json::find(resource, "blob").filter(|raw| raw.len() > 2 && raw[0] == b'"');
        let (Some(blob), Some(uri)) = (blob, json::find(resource, "uri").and_then(string_value))
        else {
            continue;
        };
        let start = offset(blob);
        found.push(Embedded { name: file_name(&uri), blob: start..start + blob.len() });
    }
    found
}

/// The last part of an address, decoded, as a file can be named.
fn file_name(uri: &str) -> String {
    let path = uri.split(['?', '#']).next().unwrap_or_default();
    let last = path.trim_end_matches('/').rsplit(['/', ':', '\\']).next().unwrap_or_default();
    let mut bytes = Vec::with_capacity(last.len());
    let mut rest = last.as_bytes();
    while let [first, tail @ ..] = rest {
        let hex = tail.get(..2).and_then(|hex| std::str::from_utf8(hex).ok());
        match hex.filter(|_| *first == b'%').and_then(|hex| u8::from_str_radix(hex, 16).ok()) {
            Some(byte) => {
                bytes.push(byte);
                rest = &tail[2..];
            }
            None => {
                bytes.push(*first);
                rest = tail;
            }
        }
    }
    let name: String = String::from_utf8_lossy(&bytes)
        .chars()
        .map(|c| if c.is_control() || matches!(c, '/' | '\\') { '_' } else { c })
        .collect();
    match name.trim_start_matches('.') {
        "" => "file".to_owned(),
        name => name.to_owned(),
    }
}

/// The values of the members with these names, anywhere in a JSON text: hints of where files are.
pub fn hints(text: &[u8], fields: &[String]) -> Vec<String> {
    let mut found = Vec::new();
    let Ok(value) = serde_json::from_slice::<serde_json::Value>(text) else { return found };
    collect(&value, fields, &mut found);
    found
}

/// How many hints of one text are looked at.
const MAX_HINTS: usize = 64;

fn collect(value: &serde_json::Value, fields: &[String], found: &mut Vec<String>) {
    use serde_json::Value;
    match value {
        Value::Object(members) => {
            for (name, value) in members {
                match value {
                    Value::String(text) if fields.contains(name) && found.len() < MAX_HINTS => {
                        found.push(text.clone());
                    }
                    // Servers answer with JSON inside a text block.
                    Value::String(text) if name == "text" && text.starts_with(['{', '[']) => {
                        if let Ok(inner) = serde_json::from_str(text) {
                            collect(&inner, fields, found);
                        }
                    }
                    _ => collect(value, fields, found),
                }
            }
        }
        Value::Array(items) => items.iter().for_each(|item| collect(item, fields, found)),
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn offer(name: &str) -> Offer {
        Offer {
            name: name.to_owned(),
            size: 1234,
            mime: "text/plain",
            url: format!("/files/j/{name}"),
            uri: format!("http://h/files/j/{name}"),
            newest: None,
        }
    }

    #[track_caller]
    fn check(answer: &str, revision: Revision, expected: &str) {
        let answer = Message::parse(answer.as_bytes()).unwrap();
        let (changed, blocks) = with_files(answer, &[offer("a.txt")], 0, &[], "tomorrow", revision);
        assert_eq!(expected.matches("a.txt\",\"mimeType").count(), blocks.saturating_sub(1));
        assert_eq!(expected.contains("Files made"), blocks > 0);
        assert_eq!(std::str::from_utf8(changed.text()).unwrap(), expected);
    }

    const BLOCK: &str = r##"{"type":"resource","resource":{"uri":"http://h/files/j/a.txt#files","mimeType":"text/markdown","text":"Files made by this call. Give the links to the user:\n- [a.txt](/files/j/a.txt) (1.2 kB, until tomorrow)"}}"##;
    const LINK: &str = r#"{"type":"resource_link","uri":"http://h/files/j/a.txt","name":"a.txt","mimeType":"text/plain","size":1234}"#;

    #[test]
    fn files_are_added_and_nothing_else_changes() {
        let answer = r#"{"id":1,"result":{"content":[{"type":"text","text":"x"} ],"n":1.0}}"#;
        let expected = format!(
            r#"{{"id":1,"result":{{"content":[{{"type":"text","text":"x"}} ,{BLOCK},{LINK}],"n":1.0}}}}"#
        );
        check(answer, Revision::V2025_06_18, &expected);
    }

    #[test]
    fn the_newest_version_stands_beside_the_file() {
        let answer = Message::parse(&br#"{"id":1,"result":{"content":[]}}"#[..]).unwrap();
        let offer = Offer { newest: Some("/files/n/a.txt".to_owned()), ..offer("a.txt") };
        let (answer, _) = with_files(answer, &[offer], 0, &[], "tomorrow", Revision::V2025_03_26);
        let told = "until tomorrow), or [always its newest version](/files/n/a.txt)\"";
        let text = String::from_utf8(answer.text().to_vec()).unwrap();
        assert!(text.contains(told), "{text}");
    }

    #[test]
    fn older_clients_hear_of_files_in_words_only() {
        let expected = format!(r#"{{"id":1,"result":{{"content":[{BLOCK}]}}}}"#);
        check(r#"{"id":1,"result":{"content":[]}}"#, Revision::V2025_03_26, &expected);
        check(r#"{"id":1,"result":{}}"#, Revision::V2025_03_26, &expected);
    }

    #[test]
    fn files_that_were_too_large_are_told() {
        let large = [Made { path: "big.bin".to_owned(), size: 5 << 30, mime: "" }];
        let told = |offers: &[Offer]| {
            let answer = Message::parse(&br#"{"id":1,"result":{"content":[]}}"#[..]).unwrap();
            let revision = Revision::V2025_03_26;
            let (answer, blocks) = with_files(answer, offers, 0, &large, "tomorrow", revision);
            assert_eq!(blocks, 1);
            String::from_utf8(answer.text().to_vec()).unwrap()
        };
        let line = r"Files that are too large to be fetched, and stay with the server:\n- big.bin (5.4 GB)";
        let alone =
            format!(r#"{{"uri":"about:blank","mimeType":"text/markdown","text":"{line}"}}"#);
        assert!(told(&[]).contains(&alone), "{}", told(&[]));
        let both = told(&[offer("a.txt")]);
        assert!(both.contains(&format!(r"until tomorrow)\n\n{line}")), "{both}");
    }

    #[test]
    fn an_error_and_a_strange_result_stay_as_they_are() {
        let error = r#"{"id":1,"error":{"code":1,"message":"m"}}"#;
        check(error, Revision::V2025_06_18, error);
        let strange = r#"{"id":1,"result":{"content":"x"}}"#;
        check(strange, Revision::V2025_06_18, strange);
    }

    #[test]
    fn embedded_blobs_are_found_by_their_place() {
        let text = r#"{"id":1,"result":{"content":[{"type":"text","text":"x"},{"type":"resource","resource":{"uri":"file:///a/b%20c.xlsx?v=1","blob":"QUJD"}},{"type":"resource","resource":{"uri":"x","text":"t"}}]}}"#;
        let answer = Message::parse(text.as_bytes()).unwrap();
        let [found] = &embedded(&answer)[..] else { panic!("one blob") };
        assert_eq!((found.name.as_str(), &text[found.blob.clone()]), ("b c.xlsx", "\"QUJD\""));
    }

    #[test]
    fn a_blob_is_base64_however_its_text_is_written() {
        let check = |blob: &str, expected: Option<&[u8]>| {
            let text = format!(
                r#"{{"id":1,"result":{{"content":[{{"resource":{{"uri":"x","blob":"{blob}"}}}}]}}}}"#
            );
            let answer = Message::parse(text.as_bytes()).unwrap();
            let [found] = &embedded(&answer)[..] else { panic!("one blob") };
            assert_eq!(found.bytes(text.as_bytes()).as_deref(), expected, "{blob}");
        };
        check("//79", Some(b"\xff\xfe\xfd"));
        check(r"\/\/79", Some(b"\xff\xfe\xfd"));
        check(r"\u002f/79", Some(b"\xff\xfe\xfd"));
        check("QUJD", Some(b"ABC"));
        check("no base64", None);
        check(r"\n", None);
    }

    #[test]
    fn a_name_from_an_address_is_one_name() {
        for (uri, name) in [
            ("file:///a/../..", "file"),
            ("x:%2e%2e%2fetc%2fpasswd", "_etc_passwd"),
            ("excel://out/日本.xlsx", "日本.xlsx"),
            ("mem:report", "report"),
            ("a/b%00c", "b_c"),
            ("", "file"),
        ] {
            assert_eq!(file_name(uri), name, "{uri}");
        }
    }

    #[test]
    fn hints_are_found_in_arguments_and_in_texts_that_are_json() {
        let fields = ["file_path".to_owned()];
        let text = br#"{"a":[{"file_path":"x.pptx"}],"content":[{"text":"{\"file_path\":\"y.pptx\"}"}],"file":"z"}"#;
        assert_eq!(hints(text, &fields), ["x.pptx", "y.pptx"]);
        assert!(hints(b"[", &fields).is_empty());
    }
}
