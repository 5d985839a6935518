//! Lines: however the bytes come, the same lines come out, and nothing a server writes is fatal.

use bytes::BytesMut;
use pontoon_wire::framing::lines::Lines;
use pontoon_wire::heal::lines::{Found, LineDoctor};
use pontoon_wire::heal::{HealMode, Heals};

pub(crate) const SEEDS: &[&str] = &[
    "\u{40}a{\"jsonrpc\":\"2.0\",\"id\":1,\"result\":{}}\n{\"jsonrpc\":\"2.0\",\"method\":\"x\"}\n",
    "\u{7f}bstarting up\r\n\u{feff}{\"jsonrpc\":\"2.0\",\"id\":1,\"result\":{}}\r\n\n\nrest",
    "\u{7f}c{\n  \"jsonrpc\": \"2.0\",\n  \"id\": 1,\n  \"result\": {}\n}\n",
    "\u{7f}d{\"jsonrpc\":\"2.0\",\"id\":1,\"result\":{}}{\"jsonrpc\":\"2.0\",\"id\":2,\"result\":{}}{}{}{}",
    "\u{7f}eINFO [x] {\"jsonrpc\":\"2.0\",\"id\":1,\"result\":{}}\n{\"open\": [\n{\"jsonrpc\":\"2.0\",\"id\":2,\"result\":1}\n",
    "\u{3}f123\n1234\n12345\n123456789\n1\n\n12345",
];

/// The lines of `data`, each or `None` when it is too long, found the simple way.
fn expected(data: &[u8], limit: usize) -> Vec<Option<Vec<u8>>> {
    let mut lines: Vec<_> = data.split(|byte| matches!(byte, b'\n' | b'\r')).collect();
    // What follows the last line end is a line only if there is something in it.
    if lines.last().is_some_and(|last| last.is_empty()) {
        lines.pop();
    }
    lines.into_iter().map(|line| (line.len() <= limit).then(|| line.to_vec())).collect()
}

/// Splitting gives the lines of the text; the doctor turns each into messages of one line.
pub fn lines(data: &[u8]) {
    let (limit, seed, data) = crate::split_head(data);
    let limit = usize::from(limit);
    let mut lines = Lines::new(limit);
    let mut found = Vec::new();
    for piece in crate::pieces(data, seed) {
        lines.buffer().extend_from_slice(piece);
        while let Some(line) = lines.next_line() {
            found.push(line.ok().map(|line| line.to_vec()));
        }
    }
    found.extend(lines.finish().map(|rest| Some(rest.to_vec())));
    assert_eq!(found, expected(data, limit));

    for mode in [HealMode::Off, HealMode::Warn, HealMode::Repair] {
        let mut doctor = LineDoctor::new(limit);
        let mut heals = Heals::new(mode);
        let mut rest = found.iter().flatten().map(|line| BytesMut::from(line.as_slice()));
        let last = rest.next_back();
        rest.for_each(|line| doctor.take(line, &mut heals));
        doctor.finish(last, &mut heals);
        while let Some(found) = doctor.next_found() {
            if let Found::Message(message) = found {
                crate::message::is_one_line(message.text());
            }
        }
    }
}
