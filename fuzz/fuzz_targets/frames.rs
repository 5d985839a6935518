//! The property `frames` for libFuzzer; without the fuzzer, for the files named on the command line.

#![cfg_attr(fuzzing, no_main)]

#[cfg(fuzzing)]
libfuzzer_sys::fuzz_target!(|data: &[u8]| pontoon_fuzz::frames(data));

#[cfg(not(fuzzing))]
fn main() -> std::io::Result<()> {
    pontoon_fuzz::replay(pontoon_fuzz::frames)
}
