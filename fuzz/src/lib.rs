//! What must hold for any input at all: one function for each fuzz target.
//!
//! A function panics when its property does not hold. libFuzzer runs them through `fuzz_targets`,
//! the `smoke` program runs them on stable Rust over mutations of [`Property::seeds`].

mod events;
mod frames;
mod lines;
mod message;
mod peer;

pub use events::events;
pub use frames::frames;
pub use lines::lines;
pub use message::message;
pub use peer::peer;

/// A property with inputs to start from.
pub struct Property {
    pub name: &'static str,
    pub check: fn(&[u8]),
    pub seeds: &'static [&'static str],
}

/// Every property.
pub const PROPERTIES: [Property; 5] = [
    Property { name: "frames", check: frames, seeds: frames::SEEDS },
    Property { name: "lines", check: lines, seeds: lines::SEEDS },
    Property { name: "events", check: events, seeds: events::SEEDS },
    Property { name: "message", check: message, seeds: message::SEEDS },
    Property { name: "peer", check: peer, seeds: peer::SEEDS },
];

/// Checks the files that the command line names, to see again what a fuzzer has found.
pub fn replay(check: fn(&[u8])) -> std::io::Result<()> {
    for path in std::env::args_os().skip(1) {
        check(&std::fs::read(path)?);
    }
    Ok(())
}

/// The numbers that decide how an input is used: the first two bytes of it, and the rest.
fn split_head(data: &[u8]) -> (u8, u8, &[u8]) {
    match data {
        [first, second, rest @ ..] => (*first, *second, rest),
        _ => (0, 0, data),
    }
}

/// Cuts `data` into pieces of changing size; which size comes when is decided by `seed`.
fn pieces(data: &[u8], seed: u8) -> impl Iterator<Item = &[u8]> {
    let (mut rest, mut state) = (data, u32::from(seed));
    std::iter::from_fn(move || {
        if rest.is_empty() {
            return None;
        }
        state = state.wrapping_mul(1_103_515_245).wrapping_add(12_345);
        let (piece, after) = rest.split_at((state >> 16) as usize % 9 % (rest.len() + 1));
        rest = after;
        Some(piece)
    })
}
