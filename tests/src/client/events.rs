//! Server-sent events, read as a strict client reads them.
//!
//! Written apart from the bridge's own reader on purpose: two readings of one rule can disagree.

/// One event; a priming event has an id and no data.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Event {
    /// What a client says to resume after it.
    pub id: Option<String>,
    /// `message` where none is given.
    pub name: Option<String>,
    /// The data lines, joined with newlines.
    pub data: String,
    /// The pause in milliseconds before a client comes again.
    pub retry: Option<u64>,
}

/// Bytes in, events out.
#[derive(Debug, Default)]
pub struct EventReader {
    bytes: Vec<u8>,
    open: Event,
    has_data: bool,
    comments: usize,
}

impl EventReader {
    /// A reader at the start of a stream.
    pub fn new() -> Self {
        Self::default()
    }

    /// Takes what has come.
    pub fn push(&mut self, bytes: &[u8]) {
        self.bytes.extend_from_slice(bytes);
    }

    /// The number of comment lines so far.
    pub fn comments(&self) -> usize {
        self.comments
    }

    /// The next whole event in what has been pushed.
    pub fn next_event(&mut self) -> Option<Event> {
        while let Some(end) = self.bytes.iter().position(|byte| *byte == b'\n') {
            let line = String::from_utf8_lossy(&self.bytes[..end]).into_owned();
            self.bytes.drain(..=end);
            let line = line.strip_suffix('\r').unwrap_or(&line);
            if line.is_empty() {
                let event = std::mem::take(&mut self.open);
                self.has_data = false;
                if event != Event::default() {
                    return Some(event);
                }
            } else {
                self.field(line);
            }
        }
        None
    }

    fn field(&mut self, line: &str) {
        let (field, value) = line.split_once(':').unwrap_or((line, ""));
        let value = value.strip_prefix(' ').unwrap_or(value);
        match field {
            "" => self.comments += 1,
            "id" => self.open.id = Some(value.to_owned()),
            "event" => self.open.name = Some(value.to_owned()),
            "retry" => self.open.retry = value.parse().ok(),
            "data" => {
                if self.has_data {
                    self.open.data.push('\n');
                }
                self.has_data = true;
                self.open.data.push_str(value);
            }
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(pieces: &[&str], wanted: &[Event]) {
        let mut reader = EventReader::new();
        let mut got = Vec::new();
        for piece in pieces {
            reader.push(piece.as_bytes());
            got.extend(std::iter::from_fn(|| reader.next_event()));
        }
        assert_eq!(got, wanted);
    }

    fn data(data: &str) -> Event {
        Event { data: data.to_owned(), ..Event::default() }
    }

    #[test]
    fn an_event_may_come_in_any_pieces() {
        check(&["da", "ta: a", "\n", "\ndata:b\r\n\r\n"], &[data("a"), data("b")]);
    }

    #[test]
    fn data_lines_are_joined() {
        check(&["data: a\ndata: b\n\n"], &[data("a\nb")]);
    }

    #[test]
    fn a_priming_event_has_an_id_and_no_data() {
        let priming = Event { id: Some(String::from("7")), retry: Some(500), ..Event::default() };
        check(&["id: 7\nretry: 500\ndata:\n\n"], &[priming]);
    }

    #[test]
    fn comments_are_no_events() {
        check(&[": ping\n\n: ping\n\ndata: a\n\n"], &[data("a")]);
    }
}
