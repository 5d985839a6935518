//! A place in a JSON text, which goes from value to value. In a text that is no JSON it goes on as if it were one, and ends.

use memchr::memchr2;

/// A place in a text.
pub(crate) struct Cursor<'t> {
    text: &'t str,
    at: usize,
}

impl<'t> Cursor<'t> {
    pub(crate) fn new(text: &'t str) -> Self {
        Self { text, at: 0 }
    }

    /// The byte that comes next.
    pub(crate) fn peek(&self) -> Option<u8> {
        self.text.as_bytes().get(self.at).copied()
    }

    /// Passes white space.
    pub(crate) fn space(&mut self) {
        while matches!(self.peek(), Some(b' ' | b'\t' | b'\n' | b'\r')) {
            self.at += 1;
        }
    }

    /// Passes the colon between a key and its value; `None` if there is none.
    pub(crate) fn colon(&mut self) -> Option<()> {
        self.space();
        let is_there = self.peek() == Some(b':');
        self.at += usize::from(is_there);
        self.space();
        is_there.then_some(())
    }

    /// Goes to the next item, past the brace or comma before it; false at the closing brace, which it passes.
    pub(crate) fn next_item(&mut self, close: u8) -> bool {
        self.space();
        if self.peek().is_none_or(|next| next == close) {
            self.at += 1;
            return false;
        }
        self.at += 1;
        self.space();
        let is_end = self.peek().is_none_or(|next| next == close);
        self.at += usize::from(is_end);
        !is_end
    }

    /// Passes one value, and gives its text.
    pub(crate) fn skip(&mut self) -> &'t str {
        let (start, mut depth) = (self.at.min(self.text.len()), 0_usize);
        while let Some(next) = self.peek() {
            match next {
                b'"' => self.skip_text(),
                b'{' | b'[' => {
                    depth += 1;
                    self.at += 1;
                }
                b'}' | b']' => {
                    depth = depth.saturating_sub(1);
                    self.at += 1;
                }
                b',' | b':' | b' ' | b'\t' | b'\n' | b'\r' if depth > 0 => self.at += 1,
                _ => self.skip_word(),
            }
            if depth == 0 {
                break;
            }
        }
        self.text.get(start..self.at).unwrap_or_default()
    }

    fn skip_word(&mut self) {
        // At least one byte, so that it ends in any text.
        self.at += 1;
        while self.peek().is_some_and(|next| {
            !matches!(next, b',' | b':' | b'}' | b']' | b' ' | b'\t' | b'\n' | b'\r')
        }) {
            self.at += 1;
        }
    }

    fn skip_text(&mut self) {
        self.at += 1;
        let bytes = self.text.as_bytes();
        while let Some(found) = bytes.get(self.at..).and_then(|rest| memchr2(b'"', b'\\', rest)) {
            self.at += found;
            if bytes[self.at] == b'"' {
                self.at += 1;
                return;
            }
            self.at += 2;
        }
        self.at = bytes.len();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_ends_in_any_text() {
        let letters = ['"', '\\', '{', '}', '[', ']', ',', ':', ' ', '1', 'é'];
        let mut texts = vec![String::new()];
        for _ in 0..4 {
            let longer = texts.iter().flat_map(|text| letters.map(|it| format!("{text}{it}")));
            texts = longer.collect();
            for text in &texts {
                let mut cursor = Cursor::new(text);
                let mut steps = 0;
                while cursor.peek().is_some() && steps < 20 {
                    cursor.next_item(b'}');
                    cursor.skip();
                    cursor.colon();
                    steps += 1;
                }
                assert!(steps < 20, "{text}");
            }
        }
    }
}
