//! A call as a short line for a person at a terminal: when, how long, what, who, and what came of it.
//!
//! It fits the terminal, however narrow that is: names are cut, and what there is no room for is left out, the
//! time first and who called next. That a call failed is always there.

use std::io;
use std::time::SystemTime;

use unicode_width::{UnicodeWidthChar, UnicodeWidthStr};

use super::call_line::CallFields;
use crate::date::to_seconds;

/// A terminal with fewer columns shows no times; one that does not say how many it has is taken for this wide.
const NARROW: usize = 50;
const USUAL: usize = 80;

/// What stands between two things.
const GAP: &str = "  ";

/// How many columns the terminal has.
pub(super) fn columns() -> usize {
    let size = rustix::termios::tcgetwinsize(io::stderr()).ok();
    size.map(|size| usize::from(size.ws_col)).filter(|columns| *columns > 0).unwrap_or(USUAL)
}

/// The line, in at most this many columns.
pub(super) fn line(
    ended: SystemTime,
    call: &CallFields<'_>,
    columns: usize,
    has_colour: bool,
) -> String {
    let time = to_seconds(ended);
    // The hour, in the zone of all times of ours.
    let time = time.split_once('T').map_or("", |(_, time)| time).to_owned() + GAP;
    let time = if columns < NARROW { "" } else { &*time };
    let took = format!("{:>7}{GAP}", took(call.duration_ms));
    let room = columns.saturating_sub(time.width() + took.width());
    let (end, who) = (end(call), who(call));
    let what = format!("{} {}", call.server, call.tool);
    // Who called keeps a part of it, where there is room for more than that a call failed.
    let kept = if columns < NARROW { 0 } else { (GAP.len() + who.width()).min(room / 4) };
    let of_end = if end.is_empty() { 0 } else { GAP.len() + end.width() };
    // A name has a third of the room at least, and more where the rest needs less.
    let what = cut(&what, (room / 3).max(room.saturating_sub(of_end + kept)));
    let room = room.saturating_sub(what.width());
    let end = cut(&end, room.saturating_sub(GAP.len() + kept));
    let of_end = if end.is_empty() { 0 } else { GAP.len() + end.width() };
    let who = match room.saturating_sub(GAP.len() + of_end) {
        // Less says nothing of a name.
        0..6 => String::new(),
        room => cut(&who, room),
    };
    let (dim, paint, plain) = match has_colour {
        true => ("\u{1b}[2m", colour(call), "\u{1b}[0m"),
        false => ("", "", ""),
    };
    let mut text = format!(
        "{dim}{time}{took}{plain}{paint}{what}{}",
        if paint.is_empty() { "" } else { plain }
    );
    for (part, paint) in [(who, dim), (end, paint)] {
        if !part.is_empty() {
            let plain = if paint.is_empty() { "" } else { plain };
            text.extend([GAP, paint, &part, plain]);
        }
    }
    text
}

/// What came of it, where there is more to say than that it worked.
fn end(call: &CallFields<'_>) -> String {
    let files = match call.files {
        0 => String::new(),
        1 => "1 file".to_owned(),
        more => format!("{more} files"),
    };
    match (call.status, &call.error) {
        ("completed", _) if call.is_error => "the tool failed".to_owned(),
        ("completed", _) => files,
        (status, Some(error)) => format!("{}: {error}", status.replace('_', " ")),
        (status, None) => status.replace('_', " "),
    }
}

/// The user, else the key, else the address.
fn who(call: &CallFields<'_>) -> String {
    let address = || call.address.to_string();
    let name = call.user.as_ref().or(call.key.as_ref());
    name.map_or_else(address, |name| name.clone().into_owned())
}

fn colour(call: &CallFields<'_>) -> &'static str {
    match call.status {
        "completed" if !call.is_error => "",
        "cancelled" | "refused" => "\u{1b}[33m",
        _ => "\u{1b}[31m",
    }
}

fn took(millis: f64) -> String {
    match millis {
        ..10.0 => format!("{millis:.1} ms"),
        ..10_000.0 => format!("{millis:.0} ms"),
        _ => format!("{:.0} s", millis / 1000.0),
    }
}

/// As much of a text as fits into so many columns.
fn cut(text: &str, columns: usize) -> String {
    if text.width() <= columns {
        return text.to_owned();
    }
    let mut left = columns.saturating_sub(1);
    let fits = |c: &char| {
        let width = c.width().unwrap_or_default();
        let fits = width <= left;
        left = left.saturating_sub(width);
        fits
    };
    let mut shown: String = text.chars().take_while(fits).collect();
    if columns > 0 {
        shown.push('…');
    }
    shown
}

#[cfg(test)]
mod tests {
    use super::super::call_line::CallLine;
    use super::super::call_line::tests::call;
    use super::*;
    use crate::observe::redact::Redactor;

    fn shown(call: &CallLine<'_>, columns: usize, has_colour: bool) -> String {
        let fields = CallFields::of(call, &Redactor::default());
        line(call.ended, &fields, columns, has_colour)
    }

    #[test]
    fn a_call_is_a_short_line() {
        let check =
            |call: &CallLine<'_>, expected: &str| assert_eq!(shown(call, 80, false), expected);
        check(&call(), "01:01:01Z    12 ms  slides make_report  ada  2 files");
        check(
            &CallLine { user: None, files: 1, ..call() },
            "01:01:01Z    12 ms  slides make_report  front  1 file",
        );
        let nobody = CallLine { user: None, key: None, files: 0, ..call() };
        check(&nobody, "01:01:01Z    12 ms  slides make_report  127.0.0.1");
        check(
            &CallLine { status: "timed_out", error: Some("it hung"), ..nobody.clone() },
            "01:01:01Z    12 ms  slides make_report  127.0.0.1  timed out: it hung",
        );
        check(
            &CallLine { is_error: true, ..nobody },
            "01:01:01Z    12 ms  slides make_report  127.0.0.1  the tool failed",
        );
    }

    #[test]
    fn it_fits_however_narrow_the_terminal_is_and_says_that_a_call_failed() {
        let (name, why) = ("ツール".repeat(30), "it ended early, which is a long story".repeat(9));
        let failed = CallLine { tool: &name, user: Some(&name), ..call() };
        let failed = CallLine { status: "failed", error: Some(&why), ..failed };
        for columns in 0..300 {
            for call in [&failed, &call()] {
                let text = shown(call, columns, false);
                assert!(text.width() <= columns.max(9), "{columns}: {text}");
            }
            if columns >= 30 {
                assert!(shown(&failed, columns, false).contains("failed"), "{columns}");
            }
        }
        assert_eq!(shown(&call(), 30, false), "  12 ms  slides make…  2 files");
    }

    #[test]
    fn what_failed_stands_out_and_what_was_cancelled_does_less() {
        let failed = CallLine { status: "failed", error: Some("gone"), ..call() };
        let cancelled = CallLine { status: "cancelled", ..call() };
        for (call, colour) in [(&call(), ""), (&failed, "\u{1b}[31m"), (&cancelled, "\u{1b}[33m")] {
            let text = shown(call, 80, true);
            assert!(text.starts_with("\u{1b}[2m01:01:01Z"), "{text:?}");
            let strong = ["\u{1b}[31m", "\u{1b}[33m"].map(|it| text.matches(it).count());
            assert_eq!(
                strong.iter().sum::<usize>(),
                if colour.is_empty() { 0 } else { 2 },
                "{text:?}"
            );
            assert!(
                text.contains(colour) && text.ends_with("\u{1b}[0m") != colour.is_empty(),
                "{text:?}"
            );
        }
    }
}
