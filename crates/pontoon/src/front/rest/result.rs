//! The result of a tool as the body of a response, in mcpo's way: the value of the one block there is, or a list.
//!
//! A text that is JSON is that value. Pictures and sounds are `data:` addresses, all but pictures in a list. What mcpo
//! leaves out stays in: embedded resources are their contents, links stay as they are, and structured content is one more
//! value where the texts do not say what it says.

use pontoon_wire::{json, quoted, string_value};
use serde_json::value::RawValue;

use super::structure;

/// The body for this result, a JSON text. The bridge added its last blocks, `added` of them: a text that tells of files,
/// and links to them, which say nothing more.
pub(super) fn body(result: &[u8], added: usize) -> String {
    let Telling { blocks, told, untold } = Telling::of(result, added);
    let all = || blocks.iter().chain(&told);
    let mut values: Vec<_> = blocks.iter().map(|block| value(block)).collect();
    values.extend(untold.map(|it| String::from_utf8_lossy(it).into_owned()));
    values.extend(told.iter().map(|block| value(block)));
    let is_text = all().all(|block| kind(block).is_some_and(|kind| kind == "text"));
    one_or_all(&values, is_text)
}

/// What a result says.
struct Telling<'r> {
    /// Its own blocks.
    blocks: Vec<&'r [u8]>,
    /// The text that was added to tell of files.
    told: Option<&'r [u8]>,
    /// Its structured content, where that says more than the texts do.
    untold: Option<&'r [u8]>,
}

impl<'r> Telling<'r> {
    fn of(result: &'r [u8], added: usize) -> Self {
        let content = json::find(result, "content").unwrap_or(b"[]");
        let mut blocks: Vec<_> =
            json::elements(content, 0..content.len()).map(|block| &content[block]).collect();
        let own = blocks.len().saturating_sub(added);
        let told = blocks.split_off(own).into_iter().next();
        let structured = json::find(result, "structuredContent").filter(|it| *it != b"null");
        let untold = structured.filter(|structured| {
            let texts: Vec<_> = blocks.iter().filter_map(|block| text_of(block)).collect();
            blocks.is_empty() || !structure::is_told(structured, &texts)
        });
        Self { blocks, told, untold }
    }
}

/// The only value, or a list. What is neither text nor picture stands in a list: there Open WebUI makes a file of it, and
/// by itself it would be read to the model, letter by letter.
fn one_or_all(values: &[String], is_text: bool) -> String {
    let is_file = |value: &str| value.starts_with("\"data:") && !value.starts_with("\"data:image/");
    match values {
        [one] if is_text || !is_file(one) => one.clone(),
        all => format!("[{}]", all.join(",")),
    }
}

/// The page of HTML, if this result is nothing else. Blocks that the bridge added, `added` of them, tell of files that
/// the page does not show, so there is none then.
pub(super) fn page(result: &[u8], added: usize) -> Option<String> {
    let content = json::find(result, "content")?;
    let mut blocks = json::elements(content, 0..content.len()).map(|block| &content[block]);
    let first = blocks.next().filter(|_| added == 0)?;
    let embedded = json::find(first, "resource").filter(|_| blocks.next().is_none())?;
    let mime = member(embedded, "mimeType")?.to_ascii_lowercase();
    let (kind, rest) = mime.split_once(';').unwrap_or((&mime, ""));
    let is_html =
        kind.trim() == "text/html" && (rest.is_empty() || rest.trim().starts_with("charset="));
    member(embedded, "text").filter(|_| is_html)
}

/// The body for the contents of a resource: the value of the only part, or a list.
pub(super) fn contents(contents: &[u8]) -> String {
    let parts = json::elements(contents, 0..contents.len()).map(|part| &contents[part]);
    let values: Vec<_> = parts
        .map(|part| resource(part).unwrap_or_else(|| String::from_utf8_lossy(part).into_owned()))
        .collect();
    one_or_all(&values, false)
}

/// What a result says, for people, as one text: its texts, and its structure where that says more. Of pictures and sounds
/// only which they are.
pub(super) fn in_words(result: &[u8], added: usize) -> String {
    let Telling { blocks, told, untold } = Telling::of(result, added);
    let whole = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let words =
        |block: &[u8]| text_of(block).or_else(|| named(block)).unwrap_or_else(|| whole(block));
    let own = blocks.iter().map(|block| words(block));
    let rest = untold.map(whole).into_iter().chain(told.map(words));
    own.chain(rest).filter(|it| !it.is_empty()).collect::<Vec<_>>().join("\n")
}

/// The text of a block, of an embedded resource too.
fn text_of(block: &[u8]) -> Option<String> {
    match kind(block).as_deref() {
        Some("text") => member(block, "text"),
        Some("resource") => json::find(block, "resource").and_then(|it| member(it, "text")),
        _ => None,
    }
}

/// What the bytes of a block are, which would say nothing to a reader: a picture, a sound, a file.
fn named(block: &[u8]) -> Option<String> {
    let (what, holder, data) = match kind(block).as_deref()? {
        "image" => ("picture", block, "data"),
        "audio" => ("sound", block, "data"),
        "resource" => ("file", json::find(block, "resource")?, "blob"),
        _ => return None,
    };
    let data = member(holder, data)?;
    let mime = member(holder, "mimeType").unwrap_or_else(|| "of no known type".to_owned());
    Some(format!("[a {what}: {mime}, {} bytes]", data.trim_end_matches('=').len() * 3 / 4))
}

fn kind(block: &[u8]) -> Option<std::borrow::Cow<'_, str>> {
    json::find(block, "type").and_then(string_value)
}

/// The value of a block, a JSON text.
fn value(block: &[u8]) -> String {
    let whole = || String::from_utf8_lossy(block).into_owned();
    let value = match kind(block).as_deref() {
        Some("text") => member(block, "text").map(|text| parsed(&text)),
        Some("image" | "audio") => member(block, "data")
            .map(|data| data_address(member(block, "mimeType").as_deref(), &data)),
        Some("resource") => json::find(block, "resource").and_then(resource),
        _ => None,
    };
    value.unwrap_or_else(whole)
}

/// The contents of a resource: a text is itself, or its value if it is JSON.
fn resource(resource: &[u8]) -> Option<String> {
    let mime = member(resource, "mimeType");
    match (member(resource, "text"), member(resource, "blob")) {
        (Some(text), _) if mime.as_deref().is_some_and(is_json) => Some(parsed(&text)),
        (Some(text), _) => Some(quoted(&text)),
        (None, Some(blob)) => Some(data_address(mime.as_deref(), &blob)),
        (None, None) => None,
    }
}

fn member(of: &[u8], name: &str) -> Option<String> {
    json::find(of, name).and_then(string_value).map(|it| it.into_owned())
}

fn is_json(mime: &str) -> bool {
    mime.starts_with("application/json") || mime.contains("+json")
}

fn data_address(mime: Option<&str>, data: &str) -> String {
    quoted(&format!("data:{};base64,{data}", mime.unwrap_or("application/octet-stream")))
}

/// The value of a text that is JSON, else the text.
fn parsed(text: &str) -> String {
    if let Some(value) = as_json(text) {
        return value.to_owned();
    }
    // Python writes these where JSON has no word, and its clients read them as null.
    match ["NaN", "Infinity"].iter().any(|word| text.contains(word)) {
        true => {
            let replaced = without_words(text);
            as_json(&replaced).map_or_else(|| quoted(text), str::to_owned)
        }
        false => quoted(text),
    }
}

fn as_json(text: &str) -> Option<&str> {
    let trimmed = text.trim_matches([' ', '\t', '\n', '\r']);
    serde_json::from_str::<&RawValue>(trimmed).ok().map(|_| trimmed)
}

/// The text with null for `NaN`, `Infinity` and `-Infinity`, where they stand outside of strings.
fn without_words(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    let mut is_inside = false;
    while let Some(first) = rest.chars().next() {
        let word = ["-Infinity", "Infinity", "NaN"].into_iter().find(|it| rest.starts_with(it));
        let taken = match (first, word) {
            (_, Some(word)) if !is_inside => {
                out.push_str("null");
                rest = &rest[word.len()..];
                continue;
            }
            // What is escaped ends no string.
            ('\\', _) => first.len_utf8() + rest[1..].chars().next().map_or(0, char::len_utf8),
            _ => first.len_utf8(),
        };
        is_inside ^= first == '"';
        out.push_str(&rest[..taken]);
        rest = &rest[taken..];
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(content: &str, expected: &str) {
        let result = format!("{{\"content\":[{content}]}}");
        assert_eq!(body(result.as_bytes(), 0), expected);
    }

    fn text(text: &str) -> String {
        format!("{{\"type\":\"text\",\"text\":{}}}", quoted(text))
    }

    #[test]
    fn one_block_is_its_value_and_several_are_a_list() {
        check("", "[]");
        check(&text("plain words"), r#""plain words""#);
        check(&[text("one"), text("2")].join(" , "), r#"["one",2]"#);
    }

    #[test]
    fn a_text_that_is_json_is_that_value() {
        for (given, expected) in [
            ("42", "42"),
            ("true", "true"),
            ("null", "null"),
            ("data:audio/wav;base64,AA==", "\"data:audio/wav;base64,AA==\""),
            (" {\"a\": [1, 2.50]}\n", "{\"a\": [1, 2.50]}"),
            ("12345678901234567890.10e+5", "12345678901234567890.10e+5"),
            ("[NaN, 1, \"NaN \\\" NaN\", -Infinity]", "[null, 1, \"NaN \\\" NaN\", null]"),
            ("NaN", "null"),
            ("", "\"\""),
            ("Infinity is far", "\"Infinity is far\""),
            ("{\"a\":}", "\"{\\\"a\\\":}\""),
            ("1 2", "\"1 2\""),
        ] {
            check(&text(given), expected);
        }
    }

    #[test]
    fn pictures_and_sounds_are_addresses() {
        check(
            r#"{"type":"image","mimeType":"image/png","data":"AA\/="}"#,
            r#""data:image/png;base64,AA/=""#,
        );
        check(
            r#"{"type":"audio","mimeType":"audio/wav","data":"AA=="}"#,
            r#"["data:audio/wav;base64,AA=="]"#,
        );
    }

    #[test]
    fn what_is_embedded_or_linked_is_not_lost() {
        let resource = |members: &str| format!(r#"{{"type":"resource","resource":{{{members}}}}}"#);
        check(&resource(r#""uri":"a:b","mimeType":"text/plain","text":"1""#), r#""1""#);
        check(&resource(r#""uri":"a:b","mimeType":"application/json","text":"[1]""#), "[1]");
        check(
            &resource(r#""uri":"a:b","mimeType":"image/png","blob":"AA==""#),
            r#""data:image/png;base64,AA==""#,
        );
        check(
            &resource(r#""uri":"a:b","mimeType":"application/zip","blob":"AA==""#),
            r#"["data:application/zip;base64,AA=="]"#,
        );
        let link = r#"{"type":"resource_link","uri":"https://x/y","name":"y"}"#;
        check(link, link);
        let unknown = r#"{"type":"dance","steps":3}"#;
        check(unknown, unknown);
    }

    #[test]
    fn structured_content_is_told_where_no_text_says_the_same() {
        let image = r#"{"type":"image","mimeType":"image/png","data":"AA=="}"#;
        let linked = r#"{"type":"resource_link","uri":"https://x/y","name":"y"}"#;
        let same = r#"{"type":"resource","resource":{"uri":"a:b","text":"{\"sum\": 3}"}}"#;
        let picture = r#""data:image/png;base64,AA==""#;
        for (content, expected) in [
            (String::new(), r#"{"sum":3}"#.to_owned()),
            (text("{\"sum\": 3}"), r#"{"sum": 3}"#.to_owned()),
            (text("3"), "3".to_owned()),
            (text("three"), r#"["three",{"sum":3}]"#.to_owned()),
            (image.to_owned(), format!("[{picture},{{\"sum\":3}}]")),
            (
                format!("{},{image}", text("The sum is 3.")),
                format!("[\"The sum is 3.\",{picture}]"),
            ),
            (linked.to_owned(), format!("[{linked},{{\"sum\":3}}]")),
            (same.to_owned(), r#""{\"sum\": 3}""#.to_owned()),
        ] {
            let result = format!(r#"{{"content":[{content}],"structuredContent":{{"sum":3}}}}"#);
            assert_eq!(body(result.as_bytes(), 0), expected, "{result}");
        }
        assert_eq!(body(b"{}", 0), "[]");
    }

    #[test]
    fn files_are_one_more_element_that_tells_of_them() {
        let told = r#"{"type":"resource","resource":{"uri":"http://h/a#files","mimeType":"text/markdown","text":"Files"}}"#;
        let link = r#"{"type":"resource_link","uri":"http://h/a","name":"a"}"#;
        let result = format!(r#"{{"content":[{},{told},{link}]}}"#, text("done"));
        assert_eq!(body(result.as_bytes(), 2), r#"["done","Files"]"#);
        let structured =
            format!(r#"{{"content":[{told},{link}],"structuredContent":{{"sum":3}}}}"#);
        assert_eq!(body(structured.as_bytes(), 2), r#"[{"sum":3},"Files"]"#);
        let too_large = format!(r#"{{"content":[{told}],"structuredContent":{{"sum":3}}}}"#);
        assert_eq!(body(too_large.as_bytes(), 1), r#"[{"sum":3},"Files"]"#);
        // Where they are told in the head alone, a link is the tool's own.
        let own = format!(r#"{{"content":[{},{link}]}}"#, text("done"));
        assert_eq!(body(own.as_bytes(), 0), format!(r#"["done",{link}]"#));
        let said = format!(r#"{{"content":[{}],"structuredContent":{{"sum":3}}}}"#, text("three"));
        assert_eq!(body(said.as_bytes(), 0), r#"["three",{"sum":3}]"#);
    }

    #[test]
    fn a_page_is_a_result_that_is_nothing_else() {
        let html = |mime: &str| {
            format!(
                r#"{{"type":"resource","resource":{{"uri":"ui://a","mimeType":"{mime}","text":"<p>\u00e4</p>"}}}}"#
            )
        };
        let said = text("done");
        for (blocks, added, is_page) in [
            (vec![html("text/html")], 0, true),
            (vec![html("text/html; charset=utf-8")], 0, true),
            (vec![html("TEXT/HTML")], 0, true),
            // Files were made, of which the page says nothing.
            (vec![html("text/html"), said.clone()], 1, false),
            (vec![html("text/html"), said.clone()], 0, false),
            (vec![said.clone(), html("text/html")], 0, false),
            (vec![html("text/html;profile=mcp-app")], 0, false),
            (vec![html("text/plain")], 0, false),
            (vec![said], 0, false),
            (vec![], 0, false),
        ] {
            let result = format!(r#"{{"content":[{}]}}"#, blocks.join(","));
            let expected = is_page.then(|| "<p>ä</p>".to_owned());
            assert_eq!(page(result.as_bytes(), added), expected, "{result}");
        }
    }

    #[test]
    fn what_a_failed_tool_said_is_told_in_words() {
        let resource = r#"{"type":"resource","resource":{"uri":"a:b","text":"in a resource"}}"#;
        let blob = r#"{"type":"resource","resource":{"uri":"a:b","blob":"AAAA"}}"#;
        let image = r#"{"type":"image","mimeType":"image/png","data":"AAA="}"#;
        let link = r#"{"type":"resource_link","uri":"https://x/y","name":"y"}"#;
        for (members, added, expected) in [
            (format!(r#""content":[{},{}]"#, text("boom"), text("bang")), 0, "boom\nbang"),
            (format!(r#""content":[{resource}]"#), 0, "in a resource"),
            (
                format!(r#""content":[{image},{blob}]"#),
                0,
                "[a picture: image/png, 2 bytes]\n[a file: of no known type, 3 bytes]",
            ),
            (format!(r#""content":[{link}]"#), 0, link),
            (r#""content":[],"structuredContent":{"code":7}"#.to_owned(), 0, r#"{"code":7}"#),
            (r#""structuredContent":{"code":7}"#.to_owned(), 0, r#"{"code":7}"#),
            (
                format!(r#""content":[{}],"structuredContent":{{"code":7}}"#, text("code 7")),
                0,
                "code 7",
            ),
            (
                format!(r#""content":[{}],"structuredContent":{{"code":7}}"#, text("boom")),
                0,
                "boom\n{\"code\":7}",
            ),
            (
                format!(r#""content":[{},{resource},{link}]"#, text("boom")),
                2,
                "boom\nin a resource",
            ),
            (String::new(), 0, ""),
        ] {
            let result = format!("{{{members}}}");
            assert_eq!(in_words(result.as_bytes(), added), expected, "{result}");
        }
    }
}
