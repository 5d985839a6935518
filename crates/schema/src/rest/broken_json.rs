//! Where a text stops being JSON, and why, in the words of Python's reader.

/// Lists and objects inside each other are followed this far.
const MAX_DEPTH: usize = 200;

/// What is wrong, and at which letter.
type Problem = (usize, &'static str);

/// The first problem of a text that is no JSON.
pub(super) fn problem(text: &str) -> Problem {
    let letters: Vec<char> = text.chars().collect();
    let mut scan = Scan { letters: &letters, at: 0 };
    scan.space();
    let found = scan.value(0).and_then(|()| {
        scan.space();
        match scan.peek() {
            Some(_) => Err((scan.at, "Extra data")),
            None => Ok(()),
        }
    });
    found.err().unwrap_or((0, "Expecting value"))
}

struct Scan<'t> {
    letters: &'t [char],
    at: usize,
}

impl Scan<'_> {
    fn peek(&self) -> Option<char> {
        self.letters.get(self.at).copied()
    }

    fn space(&mut self) {
        while matches!(self.peek(), Some(' ' | '\t' | '\n' | '\r')) {
            self.at += 1;
        }
    }

    /// Passes a letter, if it is this one.
    fn pass(&mut self, letter: char) -> bool {
        let is_it = self.peek() == Some(letter);
        self.at += usize::from(is_it);
        is_it
    }

    fn value(&mut self, depth: usize) -> Result<(), Problem> {
        let start = self.at;
        match self.peek() {
            Some('"') => return self.text(),
            Some('{' | '[') if depth >= MAX_DEPTH => {}
            Some('{') => return self.object(depth),
            Some('[') => return self.list(depth),
            Some('-' | '0'..='9') if self.number() => return Ok(()),
            _ => {
                for word in ["null", "true", "false"] {
                    if self.letters[start..].iter().take(word.len()).copied().eq(word.chars()) {
                        self.at += word.len();
                        return Ok(());
                    }
                }
            }
        }
        Err((start, "Expecting value"))
    }

    fn digits(&mut self) -> bool {
        let start = self.at;
        while self.peek().is_some_and(|it| it.is_ascii_digit()) {
            self.at += 1;
        }
        self.at > start
    }

    /// Passes a number, and of what comes after it nothing.
    fn number(&mut self) -> bool {
        self.pass('-');
        if !self.pass('0') && !self.digits() {
            return false;
        }
        let whole = self.at;
        if !(self.pass('.') && self.digits()) {
            self.at = whole;
        }
        let end = self.at;
        let has_exponent = (self.pass('e') || self.pass('E')) && {
            let _ = self.pass('+') || self.pass('-');
            self.digits()
        };
        if !has_exponent {
            self.at = end;
        }
        true
    }

    fn object(&mut self, depth: usize) -> Result<(), Problem> {
        self.at += 1;
        self.space();
        if self.pass('}') {
            return Ok(());
        }
        loop {
            if self.peek() != Some('"') {
                return Err((self.at, "Expecting property name enclosed in double quotes"));
            }
            self.text()?;
            self.space();
            if !self.pass(':') {
                return Err((self.at, "Expecting ':' delimiter"));
            }
            self.space();
            self.value(depth + 1)?;
            self.space();
            if self.pass('}') {
                return Ok(());
            }
            if !self.pass(',') {
                return Err((self.at, "Expecting ',' delimiter"));
            }
            self.space();
        }
    }

    fn list(&mut self, depth: usize) -> Result<(), Problem> {
        self.at += 1;
        self.space();
        if self.pass(']') {
            return Ok(());
        }
        loop {
            self.value(depth + 1)?;
            self.space();
            if self.pass(']') {
                return Ok(());
            }
            if !self.pass(',') {
                return Err((self.at, "Expecting ',' delimiter"));
            }
            self.space();
        }
    }

    fn text(&mut self) -> Result<(), Problem> {
        let start = self.at;
        let unterminated = Err((start, "Unterminated string starting at"));
        self.at += 1;
        while let Some(letter) = self.peek() {
            let at = self.at;
            self.at += 1;
            match letter {
                '"' => return Ok(()),
                '\0'..='\x1f' => return Err((at, "Invalid control character at")),
                '\\' => match self.peek() {
                    None => return unterminated,
                    Some('u') => {
                        let digits = self.letters.get(at + 2..at + 6).unwrap_or_default();
                        let is_well = digits.len() == 4
                            && digits.iter().all(char::is_ascii_hexdigit)
                            && self.letters.len() > at + 6;
                        if !is_well {
                            return Err((at + 1, "Invalid \\uXXXX escape"));
                        }
                        self.at += 5;
                    }
                    Some('"' | '\\' | '/' | 'b' | 'f' | 'n' | 'r' | 't') => self.at += 1,
                    Some(_) => return Err((at, "Invalid \\escape")),
                },
                _ => {}
            }
        }
        unterminated
    }
}
