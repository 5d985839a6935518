//! Text that cannot be read as it is: bytes that are not UTF-8, and halves of surrogate pairs (H06).

use bytes::BytesMut;

/// The escape of the replacement character, as long as the escape it stands for.
const REPLACEMENT: &[u8; 6] = b"\\ufffd";

/// The text with the replacement character in place of what cannot be read; `None` if all of it can.
pub(super) fn readable(text: &[u8]) -> Option<BytesMut> {
    let mut changed = match std::str::from_utf8(text) {
        Ok(_) => None,
        Err(_) => Some(BytesMut::from(String::from_utf8_lossy(text).as_bytes())),
    };
    let halves = halves_of_pairs(changed.as_deref().unwrap_or(text));
    if !halves.is_empty() {
        let changed = changed.get_or_insert_with(|| BytesMut::from(text));
        for at in halves {
            changed[at..at + REPLACEMENT.len()].copy_from_slice(REPLACEMENT);
        }
    }
    changed
}

/// Where escapes stand that are half of a surrogate pair.
fn halves_of_pairs(text: &[u8]) -> Vec<usize> {
    let mut halves = Vec::new();
    let mut at = 0;
    while let Some(found) = memchr::memchr(b'\\', &text[at..]) {
        at += found;
        match (unit(text, at), unit(text, at + 6)) {
            (Some(0xD800..=0xDBFF), Some(0xDC00..=0xDFFF)) => at += 12,
            (Some(0xD800..=0xDFFF), _) => {
                halves.push(at);
                at += 6;
            }
            // A backslash that is escaped itself begins no other escape.
            _ => at = text.len().min(at + 2),
        }
    }
    halves
}

/// The UTF-16 unit that an escape at this place stands for.
fn unit(text: &[u8], at: usize) -> Option<u16> {
    let digits = text.get(at..at + 6)?.strip_prefix(b"\\u")?;
    let digits = std::str::from_utf8(digits).ok().filter(|it| !it.starts_with('+'))?;
    u16::from_str_radix(digits, 16).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(text: &[u8], expected: Option<&str>) {
        let readable = readable(text).map(|text| String::from_utf8(text.to_vec()).unwrap());
        assert_eq!(readable.as_deref(), expected, "{}", String::from_utf8_lossy(text));
    }

    #[test]
    fn what_can_be_read_is_untouched() {
        for text in ["{}", r#""\ud83d\ude00 \u00e4 \\ud83d \n""#, "日本", "\\", "\\u", "\\ud83"] {
            check(text.as_bytes(), None);
        }
    }

    #[test]
    fn what_cannot_be_read_is_replaced_and_nothing_else() {
        check(b"\"K\xe4se \\u00e4\"", Some("\"K\u{fffd}se \\u00e4\""));
        check(br#""a\ud83d b\ude00""#, Some(r#""a\ufffd b\ufffd""#));
        check(br#""\ud83d\ud83d\ude00\\""#, Some(r#""\ufffd\ud83d\ude00\\""#));
        check(b"\xff\\uDEAD", Some("\u{fffd}\\ufffd"));
    }
}
