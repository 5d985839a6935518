//! Events: a stream means the same however it is cut, what is written is read again, and a replay
//! gives exactly what it still has.

use bytes::Bytes;
use pontoon_wire::framing::events::{Decoder, Event, Gone, Replay, TooLong, event, priming};

pub(crate) const SEEDS: &[&str] = &[
    "\u{7f}aid: 1\ndata: {\"a\":1}\n\ndata: x\r\ndata: y\r\n\r\n: ping\n\n",
    "\u{7f}b\u{feff}event: message\rid: a/1\rretry: 3000\rdata\r\r",
    "\u{4}cdata: 12345\ndata: 6\n\ndata: 1\n\nid: 123\nevent: 12\ndata: 1\n\n",
    "\u{7f}ddata:a\n\ndata:  b\nid: \0\nretry: x\nfoo\nfoo: bar\n\n",
];

type Decoded = Vec<Result<Event, TooLong>>;

fn decode<'a>(limit: usize, pieces: impl Iterator<Item = &'a [u8]>) -> Decoded {
    let mut decoder = Decoder::new(limit);
    let mut events = Vec::new();
    for piece in pieces {
        decoder.push(piece);
        events.extend(decoder.by_ref());
    }
    events
}

/// Decoding does not depend on the cuts and keeps its limit; encoding is its inverse.
pub fn events(data: &[u8]) {
    let (limit, seed, data) = crate::split_head(data);
    let bound = usize::from(limit);
    let events = decode(bound, std::iter::once(data));
    assert_eq!(decode(bound, crate::pieces(data, seed)), events);
    assert_eq!(decode(bound, data.chunks(1)), events);
    for event in events.iter().flatten() {
        let texts = [&event.id, &event.kind].into_iter().flatten();
        // Bytes that are no UTF-8 grow threefold when they are replaced.
        assert!(event.data.len() + texts.map(String::len).sum::<usize>() <= bound * 3);
    }
    round_trip(data, seed);
    replay(data, limit, seed);
}

fn round_trip(data: &[u8], seed: u8) {
    let line: Vec<u8> = data.iter().copied().filter(|byte| !b"\r\n".contains(byte)).collect();
    // Some are large enough not to be copied.
    let line = if seed.is_multiple_of(8) { line.repeat(64) } else { line };
    let parts: Vec<_> = crate::pieces(&line, seed).map(Bytes::copy_from_slice).collect();
    let id = (!seed.is_multiple_of(3)).then(|| format!("s/{seed}"));
    let retry_ms = seed.is_multiple_of(2).then_some(u64::from(seed));
    let mut written = event(id.as_deref(), retry_ms, &parts).concat();
    written.extend_from_slice(&priming("p", None));
    let expected = Event { kind: None, data: line.into(), id, retry_ms };
    let opened = Event { id: Some("p".into()), ..Event::default() };
    let read = decode(usize::MAX, crate::pieces(&written, seed));
    assert_eq!(read, [Ok(expected), Ok(opened)]);
}

fn replay(data: &[u8], max_events: u8, max_bytes: u8) {
    let bounds = (usize::from(max_events % 16), usize::from(max_bytes));
    let mut replay = Replay::new(bounds.0, bounds.1);
    let sizes: Vec<_> = data.iter().take(64).map(|byte| usize::from(*byte)).collect();
    for size in &sizes {
        replay.push(vec![Bytes::from(vec![b'x'; *size])]);
        assert!(replay.len_bytes() <= bounds.1);
    }
    let all = sizes.len() as u64;
    assert_eq!(replay.last_seq(), all);
    let mut was_gone = true;
    for seq in 0..=all + 1 {
        match replay.after(seq) {
            Ok(events) => {
                was_gone = false;
                let seqs: Vec<_> = events
                    .inspect(|(seq, payload)| {
                        assert_eq!(payload.concat().len(), sizes[*seq as usize - 1]);
                    })
                    .map(|(seq, _)| seq)
                    .collect();
                assert!(seqs.iter().copied().eq(seq + 1..=all));
            }
            // The oldest are gone first, and there is nothing beyond the last.
            Err(Gone { .. }) => assert!(was_gone || seq > all),
        }
    }
    assert!(replay.after(all).is_ok());
}
