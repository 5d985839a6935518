//! A stdio server that costs next to nothing, so that a measurement behind a bridge shows the bridge.
//!
//! One thread without a runtime, no crate but `std`, so that `rustc` alone links it statically: it starts
//! in a fraction of a millisecond and answers in some microseconds. Its tools are `echo` (gives `text`
//! back), `big` (gives text of `bytes` bytes, in lines of 64) and `pid`.
//!
//! `cheap-server [--era both|legacy|modern] [--start-ms N]`: it reads nothing for N ms, as servers do that
//! load much. It finds the members it needs in a line and checks nothing else.

#![forbid(unsafe_code)]

use std::fs::File;
use std::io::{self, BufRead, IoSlice, Write};
use std::os::fd::AsFd;
use std::time::Duration;

fn main() -> io::Result<()> {
    let mut eras = Eras { legacy: true, modern: true };
    let mut arguments = std::env::args().skip(1);
    while let Some(argument) = arguments.next() {
        let value = arguments.next().unwrap_or_default();
        match argument.as_str() {
            "--era" => eras = Eras { legacy: value != "modern", modern: value != "legacy" },
            "--start-ms" => {
                std::thread::sleep(Duration::from_millis(value.parse().unwrap_or(0)));
            }
            _ => return Err(io::Error::other(format!("there is no option `{argument}`"))),
        }
    }
    // A file of our own: the output of the library looks through every line for its end once more.
    let output = File::from(io::stdout().as_fd().try_clone_to_owned()?);
    let (mut server, mut input) = (Server { eras, output, long: Vec::new() }, io::stdin().lock());
    let mut line = Vec::new();
    while input.read_until(b'\n', &mut line)? > 0 {
        server.hear(&line)?;
        line.clear();
    }
    Ok(())
}

/// The eras that the server speaks.
struct Eras {
    legacy: bool,
    modern: bool,
}

struct Server {
    eras: Eras,
    output: File,
    /// The text of the last long result, made once.
    long: Vec<u8>,
}

const TOOLS: &str = r#""tools":[
{"name":"echo","inputSchema":{"type":"object","properties":{"text":{"type":"string"}},"required":["text"]}},
{"name":"big","inputSchema":{"type":"object","properties":{"bytes":{"type":"integer"}},"required":["bytes"]}},
{"name":"pid","inputSchema":{"type":"object","properties":{}}}]"#;

const ABOUT: &str = r#""capabilities":{"tools":{}},"serverInfo":{"name":"cheap","version":"1"}"#;

/// What the modern era adds to a result, and to one that may be kept.
const COMPLETE: &str = r#","resultType":"complete""#;
const KEPT: &str = r#","resultType":"complete","ttlMs":3600000,"cacheScope":"public""#;

impl Server {
    /// Answers a line, unless it is a notification.
    fn hear(&mut self, line: &[u8]) -> io::Result<()> {
        let Some(id) = member(line, "id") else { return Ok(()) };
        let params = member(line, "params").unwrap_or(b"{}");
        // Every request of the modern era has this, and no other.
        let is_modern = member(params, "_meta")
            .is_some_and(|meta| member(meta, "io.modelcontextprotocol/protocolVersion").is_some());
        let (complete, kept) = if is_modern { (COMPLETE, KEPT) } else { ("", "") };
        match (member(line, "method").unwrap_or_default(), is_modern) {
            (b"\"tools/call\"", _) => self.call(id, params, complete),
            (b"\"tools/list\"", _) => {
                let tools = TOOLS.replace('\n', "");
                self.answer(id, &["\"result\":{", &tools, kept, "}"])
            }
            (b"\"ping\"", _) => self.answer(id, &["\"result\":{}"]),
            (b"\"initialize\"", false) if self.eras.legacy => {
                let version = member(params, "protocolVersion").unwrap_or(b"\"2025-11-25\"");
                let version = String::from_utf8_lossy(version);
                self.answer(id, &["\"result\":{", ABOUT, ",\"protocolVersion\":", &version, "}"])
            }
            (b"\"server/discover\"", true) if self.eras.modern => self.answer(
                id,
                &["\"result\":{", ABOUT, ",\"supportedVersions\":[\"2026-07-28\"]", kept, "}"],
            ),
            _ => self.answer(id, &[r#""error":{"code":-32601,"message":"no such method"}"#]),
        }
    }

    fn call(&mut self, id: &[u8], params: &[u8], complete: &str) -> io::Result<()> {
        let arguments = member(params, "arguments").unwrap_or(b"{}");
        let begin = r#""result":{"content":[{"type":"text","text":"#;
        match member(params, "name").unwrap_or_default() {
            b"\"echo\"" => {
                let text = member(arguments, "text").unwrap_or(b"\"\"");
                let text = std::str::from_utf8(text).map_err(io::Error::other)?;
                self.answer(id, &[begin, text, "}]", complete, "}"])
            }
            b"\"pid\"" => {
                let pid = std::process::id().to_string();
                self.answer(id, &[begin, "\"", &pid, "\"}]", complete, "}"])
            }
            b"\"big\"" => {
                let asked = member(arguments, "bytes").unwrap_or(b"0");
                let lines = number(asked) / LINE.len();
                if self.long.len() != lines * LINE.len() {
                    self.long = LINE.repeat(lines).into_bytes();
                }
                let head = self.head(id, &[begin, "\""]);
                let tail = format!("\"}}]{complete}}}}}\n");
                write_parts(&mut self.output, [&head, &self.long, tail.as_bytes()])
            }
            _ => self.answer(id, &[r#""error":{"code":-32602,"message":"no such tool"}"#]),
        }
    }

    fn answer(&mut self, id: &[u8], parts: &[&str]) -> io::Result<()> {
        let mut line = self.head(id, parts);
        line.extend_from_slice(b"}\n");
        self.output.write_all(&line)
    }

    /// An answer without its end.
    fn head(&self, id: &[u8], parts: &[&str]) -> Vec<u8> {
        let mut line = Vec::with_capacity(512);
        line.extend_from_slice(b"{\"jsonrpc\":\"2.0\",\"id\":");
        line.extend_from_slice(id);
        line.push(b',');
        parts.iter().for_each(|part| line.extend_from_slice(part.as_bytes()));
        line
    }
}

/// Text like that of tools: a line, with its end escaped as JSON wants it.
const LINE: &str = "a line of words as tools write them, with its end escaped.....\\n";

fn number(digits: &[u8]) -> usize {
    let digits = digits.iter().filter(|byte| byte.is_ascii_digit());
    digits.fold(0, |number, digit| number * 10 + usize::from(digit - b'0'))
}

/// Writes all parts, with as few system calls as there can be.
fn write_parts(output: &mut File, parts: [&[u8]; 3]) -> io::Result<()> {
    let mut slices = parts.map(IoSlice::new);
    let mut left = &mut slices[..];
    while !left.is_empty() {
        let written = output.write_vectored(left)?;
        IoSlice::advance_slices(&mut left, written);
    }
    Ok(())
}

/// The text of a member's value, where `json` begins with an object.
fn member<'j>(json: &'j [u8], wanted: &str) -> Option<&'j [u8]> {
    let after = |at: usize, byte: u8| {
        let is_passed = |it: &u8| it.is_ascii_whitespace() || *it == byte;
        Some(at + json.get(at..)?.iter().take_while(|it| is_passed(it)).count())
    };
    let mut at = after(0, b'{')?;
    while json.get(at) == Some(&b'"') {
        let end = value_end(json, at)?;
        let is_wanted = json.get(at + 1..end - 1)? == wanted.as_bytes();
        let begin = after(end, b':')?;
        let end = value_end(json, begin)?;
        if is_wanted {
            return json.get(begin..end);
        }
        at = after(end, b',')?;
    }
    None
}

/// Where the value ends that begins at `at`.
fn value_end(json: &[u8], mut at: usize) -> Option<usize> {
    let (mut depth, mut is_in_string) = (0_usize, false);
    loop {
        match (json.get(at)?, is_in_string) {
            (b'\\', true) => at += 1,
            (b'"', _) => {
                is_in_string = !is_in_string;
                if !is_in_string && depth == 0 {
                    return Some(at + 1);
                }
            }
            (_, true) => {}
            (b'{' | b'[', _) => depth += 1,
            (b'}' | b']', _) if depth > 1 => depth -= 1,
            (b'}' | b']', _) if depth == 1 => return Some(at + 1),
            (b'}' | b']' | b',', _) if depth == 0 => return Some(at),
            (byte, _) if depth == 0 && byte.is_ascii_whitespace() => return Some(at),
            _ => {}
        }
        at += 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_member_is_found_whatever_stands_around_it() {
        let json = r#"{"a":"x\"}{,","b":{"id":[1,{"c":2}]},"id": -7 ,"d":null}"#;
        let found = |name| member(json.as_bytes(), name).map(String::from_utf8_lossy);
        assert_eq!(found("a").as_deref(), Some(r#""x\"}{,""#));
        assert_eq!(found("b").as_deref(), Some(r#"{"id":[1,{"c":2}]}"#));
        assert_eq!(found("id").as_deref(), Some("-7"));
        assert_eq!(found("d").as_deref(), Some("null"));
        assert_eq!(found("c"), None);
    }
}
