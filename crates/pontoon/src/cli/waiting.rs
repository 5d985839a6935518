//! The line at a terminal that says what is waited for, and for how long, or how far it is.
//!
//! It is there only while it is waited for more than a moment, only where standard error is a terminal, and never longer than
//! that is wide. What it leaves on the screen is nothing.

use std::io::{self, IsTerminal, Write};
use std::sync::Arc;
use std::time::{Duration, Instant};

use pontoon_supervise::plain_text;
use tokio::task::JoinHandle;
use unicode_width::{UnicodeWidthChar, UnicodeWidthStr};

use crate::config::own_variable;
use crate::lock::Lock;

/// A wait that is over sooner is not told.
const MOMENT: Duration = Duration::from_secs(1);

/// How often the line is drawn.
const TICK: Duration = Duration::from_millis(100);

/// What turns while it is waited.
const SPINNER: [char; 10] = ['⠋', '⠙', '⠹', '⠸', '⠼', '⠴', '⠦', '⠧', '⠇', '⠏'];

/// The most columns of a bar.
const LONGEST_BAR: usize = 30;

/// The line. Dropping it removes it from the screen.
#[derive(Debug)]
pub(super) struct WaitingLine {
    screen: Arc<Lock<Screen>>,
    /// There is none where nothing is drawn.
    drawing: Option<JoinHandle<()>>,
}

/// What is waited for, and what of it is on the screen.
#[derive(Debug)]
struct Screen {
    waited: Waited,
    began: Instant,
    turn: usize,
    /// How many columns of the screen hold the line, at the width it was drawn for.
    drawn: usize,
    is_hidden: bool,
}

/// What is waited for.
#[derive(Debug, Clone, PartialEq)]
struct Waited {
    what: String,
    since: Instant,
    /// When it is given up.
    limit: Option<Duration>,
    /// How far it is, and of how much.
    reached: Option<(f64, Option<f64>)>,
}

impl WaitingLine {
    /// A line for this wait. It is drawn only for a person: `is_quiet` draws nothing either.
    pub(super) fn begin(what: impl Into<String>, is_quiet: bool) -> Self {
        let now = Instant::now();
        let what = plain_text(what.into());
        let waited = Waited { what, since: now, limit: None, reached: None };
        let screen = Screen { waited, began: now, turn: 0, drawn: 0, is_hidden: false };
        let screen = Arc::new(Lock::new(screen));
        let is_dumb = own_variable("TERM").is_some_and(|term| term == "dumb");
        let is_drawn = io::stderr().is_terminal() && !is_dumb && !is_quiet;
        let drawing = is_drawn.then(|| {
            let screen = Arc::clone(&screen);
            tokio::spawn(async move {
                let mut ticks = tokio::time::interval(TICK);
                loop {
                    ticks.tick().await;
                    screen.lock().draw(Instant::now());
                }
            })
        });
        Self { screen, drawing }
    }

    /// Says that this is waited for from now on, and until when.
    pub(super) fn is_for(&self, what: impl Into<String>, limit: Option<Duration>) {
        let what = plain_text(what.into());
        let mut screen = self.screen.lock();
        if screen.waited.what != what {
            screen.waited = Waited { what, since: Instant::now(), limit, reached: None };
        }
    }

    /// Says how far it is.
    pub(super) fn has_reached(&self, done: f64, total: Option<f64>, what: &str) {
        let mut screen = self.screen.lock();
        // A note without a total does not take it back.
        let total = total.or(screen.waited.reached.and_then(|(_, total)| total));
        screen.waited.reached = Some((done, total));
        screen.waited.what = plain_text(what.to_owned());
    }

    /// Prints something in its place; the line comes below it.
    pub(super) fn above(&self, print: impl FnOnce()) {
        let mut screen = self.screen.lock();
        screen.clear();
        print();
    }

    /// Takes it from the screen until what this gives is dropped.
    pub(super) fn hidden(&self) -> HiddenLine<'_> {
        let mut screen = self.screen.lock();
        screen.clear();
        screen.is_hidden = true;
        HiddenLine(self)
    }
}

impl Drop for WaitingLine {
    fn drop(&mut self) {
        if let Some(drawing) = self.drawing.take() {
            drawing.abort();
            let mut screen = self.screen.lock();
            screen.clear();
            // A draw that was begun ends before this, and none comes after.
            screen.is_hidden = true;
        }
    }
}

/// A line that is not on the screen for now.
#[derive(Debug)]
pub(super) struct HiddenLine<'l>(&'l WaitingLine);

impl Drop for HiddenLine<'_> {
    fn drop(&mut self) {
        self.0.screen.lock().is_hidden = false;
    }
}

impl Screen {
    fn draw(&mut self, now: Instant) {
        let is_early = now.duration_since(self.began) < MOMENT && self.waited.reached.is_none();
        if self.is_hidden || is_early {
            return;
        }
        self.turn += 1;
        let text = self.waited.text(now, SPINNER[self.turn % SPINNER.len()], width());
        let drawn = text.width();
        let text = format!("{}{text}", self.erasure(width()));
        self.drawn = drawn;
        print(&text);
    }

    fn clear(&mut self) {
        if self.drawn > 0 {
            print(&self.erasure(width()));
            self.drawn = 0;
        }
    }

    /// What takes the line from the screen. A terminal that became narrower has broken it into several.
    fn erasure(&self, width: usize) -> String {
        let above = self.drawn.saturating_sub(1) / width;
        let up = if above > 0 { format!("\u{1b}[{above}A") } else { String::new() };
        format!("\r{up}\u{1b}[J")
    }
}

impl Waited {
    /// The line, at most one column shorter than the terminal.
    fn text(&self, now: Instant, turning: char, width: usize) -> String {
        let room = width.saturating_sub(1);
        let seconds = now.duration_since(self.since).as_secs();
        if let Some((done, total)) = self.reached {
            let counted = match total {
                Some(total) => format!("{}/{}", rounded(done), rounded(total)),
                None => format!("{turning} {}", rounded(done)),
            };
            let bar = total.map(|total| bar(done / total, (room / 3).min(LONGEST_BAR)));
            let head = bar.map_or_else(|| counted.clone(), |bar| format!("{bar} {counted}"));
            return fitted(&format!("{head} {}", self.what), room);
        }
        // Something else may have to be waited for after that.
        let clock = match self.limit.filter(|limit| seconds <= limit.as_secs()) {
            Some(limit) => format!(" ({seconds} s of {} s)", limit.as_secs()),
            None => format!(" ({seconds} s)"),
        };
        // The time is the last to go.
        let what = fitted(&self.what, room.saturating_sub(2 + clock.width()));
        fitted(&format!("{turning} {what}{clock}"), room)
    }
}

fn rounded(number: f64) -> String {
    let text = format!("{number:.1}");
    text.strip_suffix(".0").map_or(text.clone(), str::to_owned)
}

fn bar(part: f64, columns: usize) -> String {
    let full = (part.clamp(0.0, 1.0) * columns as f64).round() as usize;
    format!("{}{}", "█".repeat(full), "░".repeat(columns - full))
}

/// As much of a text as has room.
fn fitted(text: &str, room: usize) -> String {
    let text = text.trim_end();
    if text.width() <= room {
        return text.to_owned();
    }
    let (mut out, mut columns) = (String::new(), 0);
    for letter in text.chars() {
        columns += letter.width().unwrap_or(0);
        if columns >= room {
            break;
        }
        out.push(letter);
    }
    if room > 0 {
        out.push('…');
    }
    out
}

fn print(text: &str) {
    let mut errors = io::stderr().lock();
    drop(errors.write_all(text.as_bytes()).and_then(|()| errors.flush()));
}

/// How many columns the terminal has.
fn width() -> usize {
    let size = rustix::termios::tcgetwinsize(io::stderr());
    size.map_or(80, |size| usize::from(size.ws_col)).max(2)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn waited(
        what: &str,
        limit: Option<u64>,
        reached: Option<(f64, Option<f64>)>,
    ) -> (Waited, Instant) {
        let since = Instant::now();
        let limit = limit.map(Duration::from_secs);
        (Waited { what: what.to_owned(), since, limit, reached }, since + Duration::from_secs(12))
    }

    #[test]
    fn it_says_what_is_waited_for_and_how_long_in_any_width() {
        let (plain, now) = waited("starting the server \"time\"", None, None);
        assert_eq!(plain.text(now, '*', 80), "* starting the server \"time\" (12 s)");
        assert_eq!(plain.text(now, '*', 30), "* starting the server… (12 s)");
        let (limited, now) = waited("waiting", Some(60), None);
        assert_eq!(limited.text(now, '*', 80), "* waiting (12 s of 60 s)");
        let (over, now) = waited("waiting", Some(3), None);
        assert_eq!(over.text(now, '*', 80), "* waiting (12 s)");
        for width in 2..200 {
            for waited in [&plain, &limited] {
                assert!(waited.text(now, '*', width).width() < width, "{width}");
            }
        }
    }

    #[test]
    fn a_bar_fits_any_width() {
        let (half, now) = waited("counting", None, Some((10.0, Some(20.0))));
        let text = half.text(now, '*', 200);
        assert_eq!(text, format!("{}{} 10/20 counting", "█".repeat(15), "░".repeat(15)));
        assert_eq!(half.text(now, '*', 30), "█████░░░░ 10/20 counting");
        let (open, now) = waited("rows", None, Some((2.5, None)));
        assert_eq!(open.text(now, '*', 80), "* 2.5 rows");
        for (done, total) in
            [(30.0, 20.0), (-1.0, 20.0), (0.0, 0.0), (f64::NAN, 5.0), (1e300, 1e301)]
        {
            let (odd, now) = waited("日本語の長い言葉", None, Some((done, Some(total))));
            for width in 2..100 {
                assert!(odd.text(now, '*', width).width() < width, "{done}/{total} {width}");
            }
        }
    }

    #[test]
    fn a_terminal_that_became_narrower_is_cleared_as_well() {
        let (waited, now) = waited("x", None, None);
        let screen = Screen { waited, began: now, turn: 0, drawn: 79, is_hidden: false };
        assert_eq!(screen.erasure(80), "\r\u{1b}[J");
        assert_eq!(screen.erasure(30), "\r\u{1b}[2A\u{1b}[J");
    }
}
