//! Text that others chose, made fit for one line of a log or of an answer.

/// Text without control characters, terminal codes and marks that change how it reads.
pub fn plain_text(text: String) -> String {
    if text.bytes().all(|byte| matches!(byte, b' '..=b'~')) {
        return text;
    }
    let mut plain = String::with_capacity(text.len());
    let mut rest = text.chars();
    while let Some(c) = rest.next() {
        match c {
            '\u{1b}' => skip_escape(&mut rest),
            '\u{9b}' => skip_sequence(&mut rest),
            // What was apart stays apart.
            '\n' | '\r' | '\t' | '\u{b}' | '\u{c}' | '\u{85}' | '\u{2028}' | '\u{2029}' => {
                plain.push(' ');
            }
            c if c.is_control() || is_trick(c) => {}
            c => plain.push(c),
        }
    }
    plain
}

/// What comes after ESC: a control sequence, a string for the terminal, or one more character.
fn skip_escape(rest: &mut std::str::Chars<'_>) {
    let mut ahead = rest.clone();
    match ahead.next() {
        Some('[') => {
            *rest = ahead;
            skip_sequence(rest);
        }
        Some(']' | 'P' | 'X' | '^' | '_') => {
            // Only up to its end: one that never ends must not hide the rest of the line.
            while let Some(c) = ahead.next() {
                let is_end = c == '\u{7}' || (c == '\u{1b}' && ahead.as_str().starts_with('\\'));
                if is_end {
                    if c == '\u{1b}' {
                        ahead.next();
                    }
                    *rest = ahead;
                    return;
                }
            }
            rest.next();
        }
        // The choice of a character set has one more.
        Some(' '..='/') => {
            *rest = ahead;
            rest.next();
        }
        Some('0'..='~') => *rest = ahead,
        _ => {}
    }
}

/// Parameters, then one final character.
fn skip_sequence(rest: &mut std::str::Chars<'_>) {
    let mut ahead = rest.clone();
    while let Some(c) = ahead.next() {
        match c {
            ' '..='?' => *rest = ahead.clone(),
            '@'..='~' => {
                *rest = ahead;
                return;
            }
            _ => return,
        }
    }
}

/// Marks that change the reading direction, hide text or belong to no text.
fn is_trick(c: char) -> bool {
    matches!(
        c,
        '\u{61c}'
            | '\u{200e}'
            | '\u{200f}'
            | '\u{202a}'..='\u{202e}'
            | '\u{2066}'..='\u{206f}'
            | '\u{fff9}'..='\u{fffb}'
            | '\u{feff}'
            | '\u{e0000}'..='\u{e007f}'
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(text: &str, expected: &str) {
        assert_eq!(plain_text(text.to_owned()), expected, "{text:?}");
    }

    #[test]
    fn no_control_gets_through() {
        check("a\nb\r\nc\td", "a b  c d");
        check("a\u{0}b\u{8}\u{7f}c\u{80}", "abc");
        check("a\u{2028}b\u{85}c", "a b c");
        check("\u{1b}[31mred\u{1b}[0m", "red");
        check("\u{9b}31mred", "red");
        check("\u{1b}]0;title\u{7}a\u{1b}]8;;http://x\u{1b}\\b", "ab");
        check("\u{1b}]0;never ends", "0;never ends");
        check("\u{1b}(Ba\u{1b}=b", "ab");
        check("\u{1b}[31", "");
        check("\u{1b}[\nnext", " next");
        check("\u{1b}", "");
        check("a\u{202e}b\u{2066}c\u{200f}d\u{feff}e\u{e0041}f", "abcdef");
    }

    #[test]
    fn every_character_gives_one_line_of_plain_text() {
        for c in '\0'..=char::MAX {
            let plain = plain_text(format!("<{c}>"));
            assert!(!plain.chars().any(|c| c.is_control() || is_trick(c)), "{c:?}: {plain:?}");
        }
    }
}
