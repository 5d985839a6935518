//! The text that Prometheus reads: families of samples, each with its help and its type.

use std::fmt::{Display, Write};

use super::histogram::{BOUNDS, Histogram};

/// The content type of the text.
pub const CONTENT_TYPE: &str = "text/plain; version=0.0.4; charset=utf-8";

/// What a number is.
#[derive(Debug, Clone, Copy)]
pub(super) enum Type {
    /// It only grows.
    Counter,
    /// It comes and goes.
    Gauge,
}

/// Labels of one sample.
pub(super) type Labels<'a> = &'a [(&'a str, &'a str)];

/// A page under construction.
#[derive(Debug, Default)]
pub(super) struct Page(String);

impl Page {
    /// A family with its samples.
    pub(super) fn family<'a, V: Display>(
        &mut self,
        name: &str,
        kind: Type,
        help: &str,
        samples: impl IntoIterator<Item = (Vec<(&'a str, &'a str)>, V)>,
    ) {
        let kind = match kind {
            Type::Counter => "counter",
            Type::Gauge => "gauge",
        };
        self.head(name, kind, help);
        for (labels, value) in samples {
            self.sample(name, &labels, value);
        }
    }

    /// A family of one number.
    pub(super) fn single(&mut self, name: &str, kind: Type, help: &str, value: impl Display) {
        self.family(name, kind, help, [(Vec::new(), value)]);
    }

    /// A family of histograms, told apart by their labels.
    pub(super) fn histograms<'a>(
        &mut self,
        name: &str,
        help: &str,
        histograms: impl IntoIterator<Item = (Vec<(&'a str, &'a str)>, &'a Histogram)>,
    ) {
        self.head(name, "histogram", help);
        let (buckets, sum, count) =
            (format!("{name}_bucket"), format!("{name}_sum"), format!("{name}_count"));
        for (mut labels, histogram) in histograms {
            let counts = histogram.cumulative();
            let (seconds, own) = (histogram.seconds(), labels.len());
            let bounds = BOUNDS.iter().map(|(_, seconds)| *seconds).chain(["+Inf"]);
            for (bound, so_many) in bounds.zip(counts) {
                labels.push(("le", bound));
                self.sample(&buckets, &labels, so_many);
                labels.truncate(own);
            }
            self.sample(&sum, &labels, seconds);
            self.sample(&count, &labels, counts[counts.len() - 1]);
        }
    }

    /// The page.
    pub(super) fn finish(self) -> String {
        self.0
    }

    fn head(&mut self, name: &str, kind: &str, help: &str) {
        self.write(format_args!("# HELP {name} {help}\n# TYPE {name} {kind}\n"));
    }

    fn sample(&mut self, name: &str, labels: Labels<'_>, value: impl Display) {
        self.0.push_str(name);
        for (at, (label, text)) in labels.iter().enumerate() {
            self.0.push(if at == 0 { '{' } else { ',' });
            self.write(format_args!("{label}=\"{}\"", Escaped(text)));
        }
        self.0.push_str(if labels.is_empty() { " " } else { "} " });
        self.write(format_args!("{value}\n"));
    }

    fn write(&mut self, text: std::fmt::Arguments<'_>) {
        self.0.write_fmt(text).expect("a string takes everything");
    }
}

/// The value of a label, so that it cannot end early.
struct Escaped<'a>(&'a str);

impl Display for Escaped<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.0.chars().try_for_each(|c| match c {
            '\\' => f.write_str("\\\\"),
            '"' => f.write_str("\\\""),
            '\n' => f.write_str("\\n"),
            c => f.write_char(c),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(label: &str, expected: &str) {
        let mut page = Page::default();
        page.family("a", Type::Gauge, "What it is.", [(vec![("b", label), ("c", "d")], 1.5)]);
        let head = "# HELP a What it is.\n# TYPE a gauge\n";
        assert_eq!(page.finish(), format!("{head}{expected}\n"));
    }

    #[test]
    fn a_label_cannot_end_early() {
        check("plain", r#"a{b="plain",c="d"} 1.5"#);
        check("x\"} 9\ny\\", r#"a{b="x\"} 9\ny\\",c="d"} 1.5"#);
    }
}
