//! Every property over random mutations of its seeds, for some seconds each, on stable Rust.
//!
//! `smoke SECONDS [SEED]`. An input that breaks a property is kept in `fuzz/artifacts`, and
//! `cargo run --bin PROPERTY -- FILE` shows it again.

use std::panic::catch_unwind;
use std::path::Path;
use std::process::ExitCode;
use std::time::{Duration, Instant, SystemTime};

use pontoon_fuzz::{PROPERTIES, Property};

/// Pieces that mean something to one parser or another.
const WORDS: &[&str] = &[
    "{",
    "}",
    "[",
    "]",
    ":",
    ",",
    "\"",
    "\\",
    "\\u",
    "\\ud83d",
    "\\ude00",
    "\\u0000",
    "\n",
    "\r",
    "\r\n",
    "\n\n",
    " ",
    "\t",
    "\0",
    "\u{feff}",
    "null",
    "true",
    "1",
    "-0",
    "1e999",
    "0.1",
    "data",
    "data: ",
    "id: ",
    "retry: ",
    "event",
    ": ",
    "\"id\":",
    "\"method\":",
    "\"params\":{",
    "\"_meta\":{",
    "\"result\":{}",
    "\"error\":{}",
    "\"jsonrpc\":\"2.0\"",
    "\"progressToken\":1",
    "\"id\":1,",
    "\"requestId\":1",
    "\nr{\"id\":1,\"method\":\"m\"}\n",
    "\nc0\n",
    "\nt\n",
    "{}",
    "[[[[[[[[",
    "日本",
];

const MAX_LEN: usize = 4096;

fn main() -> ExitCode {
    let mut arguments = std::env::args().skip(1).map(|argument| argument.parse::<u64>());
    let (Some(Ok(seconds)), seed) = (arguments.next(), arguments.next()) else {
        eprintln!("usage: smoke SECONDS [SEED]");
        return ExitCode::from(2);
    };
    let clock = || SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    let seed = seed.and_then(Result::ok).unwrap_or_else(|| clock().as_secs());
    let mut is_fine = true;
    for property in &PROPERTIES {
        match smoke(property, Duration::from_secs(seconds), seed) {
            Ok(runs) => println!("{}: {runs} inputs, seed {seed}", property.name),
            Err(input) => {
                is_fine = false;
                keep(property, &input);
            }
        }
    }
    if is_fine { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// How many inputs were tried, or the one that broke the property.
fn smoke(property: &Property, time: Duration, seed: u64) -> Result<u64, Vec<u8>> {
    let check = |input: &[u8]| catch_unwind(|| (property.check)(input)).is_ok();
    for seed in property.seeds {
        for end in (0..=seed.len()).rev() {
            let input = &seed.as_bytes()[..end];
            if !check(input) {
                return Err(input.to_vec());
            }
        }
    }
    let mut luck = Luck(seed | 1);
    let (start, mut runs) = (Instant::now(), 0);
    while start.elapsed() < time {
        for _ in 0..1000 {
            let mut input = luck.pick(property.seeds).as_bytes().to_vec();
            for _ in 0..=luck.below(6) {
                let other = luck.pick(property.seeds).as_bytes();
                mutate(&mut input, other, &mut luck);
            }
            if !check(&input) {
                return Err(input);
            }
            runs += 1;
        }
    }
    Ok(runs)
}

fn mutate(input: &mut Vec<u8>, other: &[u8], luck: &mut Luck) {
    let at = luck.below(input.len() + 1);
    let end = (at + luck.below(16)).min(input.len());
    match luck.below(7) {
        0 => drop(input.splice(at..at, luck.pick(WORDS).bytes())),
        1 => drop(input.splice(at..end, luck.pick(WORDS).bytes())),
        2 => drop(input.drain(at..end)),
        3 => input.insert(at, luck.below(256) as u8),
        4 if at < input.len() => input[at] ^= 1 << luck.below(8),
        5 => {
            let repeated = input[at..end].repeat(luck.below(8));
            input.splice(at..at, repeated);
        }
        _ => {
            let from = luck.below(other.len());
            let to = from + luck.below(other.len() - from) + 1;
            input.splice(at..end, other[from..to].iter().copied());
        }
    }
    input.truncate(MAX_LEN);
}

fn keep(property: &Property, input: &[u8]) {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("artifacts").join(property.name);
    let path = directory.join("smoke");
    let kept = std::fs::create_dir_all(&directory).and_then(|()| std::fs::write(&path, input));
    eprintln!("{}: broken by {:?}", property.name, String::from_utf8_lossy(input));
    match kept {
        Ok(()) => eprintln!("kept in {}", path.display()),
        Err(error) => eprintln!("not kept in {}: {error}", path.display()),
    }
}

/// A small generator of numbers: xorshift, good enough to choose by.
struct Luck(u64);

impl Luck {
    fn below(&mut self, end: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        ((self.0 >> 16) % end.max(1) as u64) as usize
    }

    fn pick(&mut self, all: &[&'static str]) -> &'static str {
        all[self.below(all.len())]
    }
}
