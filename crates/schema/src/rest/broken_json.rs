//! Where a text stops being JSON, and why, in the words of Python's reader, which clients of mcpo know.
//!
//! Only what is refused comes here: this reads what is there, however deep, and makes nothing of it.

/// What is wrong, and at which letter.
type Problem = (usize, &'static str);

/// The first problem of a text; `None` if it is JSON.
pub(super) fn problem(text: &str) -> Option<Problem> {
    let mut reader = Reader { text: text.as_bytes(), at: 0, open: Vec::new() };
    let (at, why) = reader.whole().err()?;
    Some((text.char_indices().take_while(|(index, _)| *index < at).count(), why))
}

struct Reader<'t> {
    text: &'t [u8],
    at: usize,
    /// The brackets that are open: true for those of objects.
    open: Vec<bool>,
}

impl Reader<'_> {
    fn whole(&mut self) -> Result<(), Problem> {
        self.space();
        loop {
            self.value()?;
            // What is over may be the last of what is around it.
            loop {
                self.space();
                let Some(is_object) = self.open.last().copied() else {
                    return if self.at == self.text.len() {
                        Ok(())
                    } else {
                        Err((self.at, "Extra data"))
                    };
                };
                match (self.peek(), is_object) {
                    (Some(b'}'), true) | (Some(b']'), false) => {
                        self.open.pop();
                        self.at += 1;
                    }
                    (Some(b','), _) => {
                        self.at += 1;
                        self.space();
                        if is_object {
                            self.key()?;
                        }
                        break;
                    }
                    _ => return Err((self.at, "Expecting ',' delimiter")),
                }
            }
        }
    }

    /// A value, or the start of one: the first value of a list or an object comes next then.
    fn value(&mut self) -> Result<(), Problem> {
        loop {
            let start = self.at;
            match self.peek() {
                Some(b'"') => return self.string(),
                Some(bracket @ (b'{' | b'[')) => {
                    self.at += 1;
                    self.space();
                    let is_object = bracket == b'{';
                    if self.peek() == Some(if is_object { b'}' } else { b']' }) {
                        self.at += 1;
                        return Ok(());
                    }
                    self.open.push(is_object);
                    if is_object {
                        self.key()?;
                    }
                }
                _ => {
                    let rest = &self.text[start..];
                    let word = ["null", "true", "false"]
                        .into_iter()
                        .find(|it| rest.starts_with(it.as_bytes()));
                    self.at += word.map_or_else(|| number(rest), str::len);
                    return if self.at == start { Err((start, "Expecting value")) } else { Ok(()) };
                }
            }
        }
    }

    /// The name of a member and its colon.
    fn key(&mut self) -> Result<(), Problem> {
        if self.peek() != Some(b'"') {
            return Err((self.at, "Expecting property name enclosed in double quotes"));
        }
        self.string()?;
        self.space();
        if self.peek() != Some(b':') {
            return Err((self.at, "Expecting ':' delimiter"));
        }
        self.at += 1;
        self.space();
        Ok(())
    }

    fn string(&mut self) -> Result<(), Problem> {
        let start = self.at;
        let unended = (start, "Unterminated string starting at");
        self.at += 1;
        loop {
            match self.peek().ok_or(unended)? {
                b'"' => {
                    self.at += 1;
                    return Ok(());
                }
                b'\\' => {
                    let escape = self.at;
                    match self.text.get(escape + 1).ok_or(unended)? {
                        b'"' | b'\\' | b'/' | b'b' | b'f' | b'n' | b'r' | b't' => self.at += 2,
                        b'u' => {
                            let digits = self.text.get(escape + 2..escape + 6);
                            let is_well = digits
                                .is_some_and(|it| it.iter().all(u8::is_ascii_hexdigit))
                                && self.text.len() > escape + 6;
                            if !is_well {
                                return Err((escape + 1, "Invalid \\uXXXX escape"));
                            }
                            self.at += 6;
                        }
                        _ => return Err((escape, "Invalid \\escape")),
                    }
                }
                0..=0x1f => return Err((self.at, "Invalid control character at")),
                _ => self.at += 1,
            }
        }
    }

    fn peek(&self) -> Option<u8> {
        self.text.get(self.at).copied()
    }

    fn space(&mut self) {
        while matches!(self.peek(), Some(b' ' | b'\t' | b'\n' | b'\r')) {
            self.at += 1;
        }
    }
}

/// How long the number is that a text begins with.
fn number(text: &[u8]) -> usize {
    let digits = |from: usize| text[from..].iter().take_while(|it| it.is_ascii_digit()).count();
    let sign = usize::from(text.first() == Some(&b'-'));
    let mut end = match text.get(sign) {
        Some(b'0') => sign + 1,
        Some(b'1'..=b'9') => sign + digits(sign),
        _ => return 0,
    };
    if text.get(end) == Some(&b'.') && digits(end + 1) > 0 {
        end += 1 + digits(end + 1);
    }
    if matches!(text.get(end), Some(b'e' | b'E')) {
        let sign = usize::from(matches!(text.get(end + 1), Some(b'+' | b'-')));
        let exponent = text.get(end + 1 + sign..).map_or(0, |_| digits(end + 1 + sign));
        if exponent > 0 {
            end += 1 + sign + exponent;
        }
    }
    end
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What the `json` of Python 3.11 says of each.
    #[test]
    fn what_is_wrong_is_told_as_python_tells_it() {
        for (text, at, why) in [
            ("{", 1, "Expecting property name enclosed in double quotes"),
            ("{'a':1}", 1, "Expecting property name enclosed in double quotes"),
            ("{\"a\":1,}", 7, "Expecting property name enclosed in double quotes"),
            ("{\"a\" 1}", 5, "Expecting ':' delimiter"),
            ("{\"a\":}", 5, "Expecting value"),
            ("{\"a\":1 \"b\":2}", 7, "Expecting ',' delimiter"),
            ("[1,]", 3, "Expecting value"),
            ("[1", 2, "Expecting ',' delimiter"),
            ("[", 1, "Expecting value"),
            ("{} {}", 3, "Extra data"),
            ("{}},\"x\":{", 2, "Extra data"),
            ("01", 1, "Extra data"),
            ("1.", 1, "Extra data"),
            ("1e", 1, "Extra data"),
            ("-", 0, "Expecting value"),
            (" ", 1, "Expecting value"),
            ("nul", 0, "Expecting value"),
            ("{\"a\":\"x", 5, "Unterminated string starting at"),
            ("\"\\", 0, "Unterminated string starting at"),
            ("\"a\nb\"", 2, "Invalid control character at"),
            ("\"\\x\"", 1, "Invalid \\escape"),
            ("\"\\u12g4\"", 2, "Invalid \\uXXXX escape"),
            ("\"\\u1234", 2, "Invalid \\uXXXX escape"),
            ("\"\\u1234x", 0, "Unterminated string starting at"),
            ("\"日本\" x", 5, "Extra data"),
            ("[[[1}]]", 4, "Expecting ',' delimiter"),
        ] {
            assert_eq!(problem(text), Some((at, why)), "{text}");
        }
        for text in
            ["{}", " [ ] ", "[1,-2.5e-3,{\"a\":[null,true,false,\"\\u00e9\\n\"]}]", "0", "\"\""]
        {
            assert_eq!(problem(text), None, "{text}");
        }
        let deep = "[".repeat(1 << 20);
        assert_eq!(problem(&deep), Some((1 << 20, "Expecting value")));
    }
}
