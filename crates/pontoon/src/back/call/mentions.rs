//! Links that a server gives itself, said in words as well.
//!
//! A `resource_link` is shown by few clients: some show only text, and there it would vanish. So one
//! `resource` block with a text names them, as it names the files of a call. Plain functions over texts.

use std::fmt::Write;

use pontoon_wire::{Message, Rewrite, Slot, Word, json, quoted, string_value};

use super::answer::label;

/// At most this many links of one answer are said.
const MAX_LINKS: usize = 50;

/// A link among the blocks of a result.
#[derive(Debug, PartialEq, Eq)]
struct Mention {
    uri: String,
    name: String,
}

/// The answer, with the links in it said in words.
pub(crate) fn with_mentions(answer: Message) -> Message {
    let links = unsaid(&answer);
    let Some(first) = links.first() else { return answer };
    let mut text = "Links given by this tool:".to_owned();
    for Mention { uri, name } in &links {
        // Writing to a string cannot fail.
        let _ = match is_web_address(uri) {
            true => write!(text, "\n- [{}]({uri})", label(name)),
            false => write!(text, "\n- {}: {uri}", label(name)),
        };
    }
    // No block that the server made has this address.
    let uri =
        if first.uri.contains('#') { first.uri.clone() } else { format!("{}#links", first.uri) };
    let block = format!(
        "{{\"type\":\"resource\",\"resource\":{{\"uri\":{},\"mimeType\":\"text/markdown\",\"text\":{}}}}}",
        quoted(&uri),
        quoted(&text)
    );
    Rewrite::new(answer).append_to(Slot::ResultContent, &block).into_message()
}

/// The links of a result that no text of it names.
fn unsaid(answer: &Message) -> Vec<Mention> {
    let content = answer.raw(Slot::ResultContent).filter(|raw| raw.first() == Some(&b'['));
    let Some(content) = content else { return Vec::new() };
    if !answer.says(Word::ResourceLink) {
        return Vec::new();
    }
    let (mut links, mut texts) = (Vec::new(), Vec::new());
    for range in json::elements(content, 0..content.len()) {
        let block = &content[range];
        let (kind, uri) = (string(block, "type"), string(block, "uri"));
        match (kind.as_deref(), uri) {
            (Some("text"), _) => texts.extend(string(block, "text")),
            (Some("resource_link"), Some(uri)) if links.len() < MAX_LINKS => {
                let name = string(block, "title").or_else(|| string(block, "name"));
                let name = on_one_line(name.as_deref().unwrap_or(&uri));
                links.push(Mention { uri: on_one_line(&uri), name });
            }
            _ => {}
        }
    }
    links.retain(|link| !texts.iter().any(|text| text.contains(&link.uri)));
    links
}

/// A member of a block that is a text.
fn string<'b>(block: &'b [u8], name: &str) -> Option<std::borrow::Cow<'b, str>> {
    json::find(block, name).and_then(string_value)
}

fn on_one_line(text: &str) -> String {
    text.chars().map(|c| if c.is_control() { ' ' } else { c }).collect()
}

/// Whether an address can stand in a Markdown link, for a browser to open.
fn is_web_address(uri: &str) -> bool {
    (uri.starts_with("https://") || uri.starts_with("http://"))
        && uri.chars().all(|c| !c.is_whitespace() && !"()<>\"".contains(c))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Compares what is added to these blocks.
    #[track_caller]
    fn check(blocks: &str, added: &str) {
        let text =
            |blocks: &str| format!(r#"{{"id":1,"result":{{"content":[{blocks}],"n":1.0}}}}"#);
        let answer = Message::parse(text(blocks).as_bytes()).unwrap();
        let found = with_mentions(answer);
        let expected = text(&format!("{blocks}{added}"));
        assert_eq!(std::str::from_utf8(found.text()).unwrap(), expected);
    }

    const LINK: &str = r#"{"type":"resource_link","uri":"https://a.example/r","name":"[r]"}"#;

    #[test]
    fn a_link_of_the_server_is_said_in_words() {
        let block = r##",{"type":"resource","resource":{"uri":"https://a.example/r#links","mimeType":"text/markdown","text":"Links given by this tool:\n- [\\[r\\]](https://a.example/r)"}}"##;
        check(LINK, block);
        let other = r#"{"type":"text","text":"x"},{"type":"resource_link","uri":"demo://r/1#a","name":"n","title":"T\nU"}"#;
        let block = r#",{"type":"resource","resource":{"uri":"demo://r/1#a","mimeType":"text/markdown","text":"Links given by this tool:\n- T U: demo://r/1#a"}}"#;
        check(other, block);
    }

    #[test]
    fn what_a_text_says_already_is_not_said_again() {
        check(&format!(r#"{LINK},{{"type":"text","text":"see https://a.example/r"}}"#), "");
        check(r#"{"type":"text","text":"\"resource_link\""}"#, "");
        check("", "");
    }

    #[test]
    fn no_address_breaks_out_of_its_line_or_link() {
        for uri in ["javascript:alert(1)", "https://a/)[x](https://b", "https://a b", "http://<b>"]
        {
            assert!(!is_web_address(uri), "{uri}");
        }
        let many = vec![LINK; 60].join(",");
        let answer = format!(r#"{{"id":1,"result":{{"content":[{many}]}}}}"#);
        let found = with_mentions(Message::parse(answer.as_bytes()).unwrap());
        let text = String::from_utf8(found.text().to_vec()).unwrap();
        assert_eq!(text.matches("](https://a.example/r)").count(), MAX_LINKS);
    }

    #[test]
    fn an_error_and_a_strange_result_stay_as_they_are() {
        for text in [
            r#"{"id":1,"error":{"code":1,"message":"\"resource_link\""}}"#,
            r#"{"id":1,"result":{"content":"\"resource_link\""}}"#,
            r#"{"id":1,"result":{"content":[{"type":"resource_link"}]}}"#,
        ] {
            let found = with_mentions(Message::parse(text.as_bytes()).unwrap());
            assert_eq!(std::str::from_utf8(found.text()).unwrap(), text);
        }
    }
}
