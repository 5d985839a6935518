//! Frames: however the bytes come, the same frames come out, and one that is too long costs only itself.

use bytes::BytesMut;
use pontoon_wire::framing::frames::{FrameTooLong, Frames};

pub(crate) const SEEDS: &[&str] = &[
    "\u{40}a\0\0\0\u{2}{}\0\0\0\0\0\0\0\u{3}abc",
    "\u{3}b\0\0\0\u{9}123456789\0\0\0\u{2}{}",
    "\u{7f}c\0\u{1}\0\0{\"method\":\"call_tool\"}\u{7f}\u{7f}\u{7f}\u{7f}",
];

/// The frames of `data`, each or its length when it is too long, found the simple way, and whether one is begun.
fn expected(mut data: &[u8], limit: usize) -> (Vec<Result<Vec<u8>, usize>>, bool) {
    let mut frames = Vec::new();
    while let Some((prefix, rest)) = data.split_first_chunk::<4>() {
        let length = u32::from_be_bytes(*prefix) as usize;
        if length > limit {
            frames.push(Err(length));
        }
        let Some((frame, rest)) = rest.split_at_checked(length) else { return (frames, true) };
        if length <= limit {
            frames.push(Ok(frame.to_vec()));
        }
        data = rest;
    }
    (frames, !data.is_empty())
}

/// Splitting gives the frames of the bytes, and keeps no more of them than it has to.
pub fn frames(data: &[u8]) {
    let (limit, seed, data) = crate::split_head(data);
    let limit = usize::from(limit);
    let mut frames = Frames::new(limit);
    let mut found = Vec::new();
    for piece in crate::pieces(data, seed) {
        frames.buffer().extend_from_slice(piece);
        while let Some(frame) = frames.next_frame() {
            found.push(
                frame
                    .map(|frame: BytesMut| frame.to_vec())
                    .map_err(|FrameTooLong { length, .. }| length),
            );
        }
        assert!(frames.buffer().len() < limit + 4, "{} bytes are kept", frames.buffer().len());
    }
    assert_eq!((found, frames.is_inside()), expected(data, limit));
}
