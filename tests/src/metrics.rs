//! The page of `/metrics`, read strictly: what Prometheus would only warn of fails here.
//!
//! The text format 0.0.4: each family once, with its help, its type and then its samples; names and
//! labels as allowed, no series twice, histograms that add up.

use std::collections::{BTreeMap, BTreeSet};

use crate::rig::Rig;

/// One number of a page.
#[derive(Debug, Clone, PartialEq)]
pub struct Sample {
    /// Its name, with the suffix of a histogram's part.
    pub name: String,
    /// Its labels.
    pub labels: BTreeMap<String, String>,
    /// Its value.
    pub value: f64,
}

/// A page that follows every rule.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Page {
    /// The type of each family, by name.
    pub families: BTreeMap<String, String>,
    /// Every sample.
    pub samples: Vec<Sample>,
}

impl Page {
    /// The page of a bridge, as it is now.
    ///
    /// # Panics
    ///
    /// When there is none, or it breaks a rule.
    pub fn of(rig: &Rig) -> Self {
        let response = rig.get("/metrics");
        assert_eq!(response.status(), 200, "{}", response.text());
        let kind = response.head.header("content-type");
        assert_eq!(kind, Some("text/plain; version=0.0.4; charset=utf-8"));
        let text = String::from_utf8(response.body).expect("text");
        Self::parse(&text).unwrap_or_else(|why| panic!("{why}\n{text}"))
    }

    /// Reads a page.
    ///
    /// # Errors
    ///
    /// The first rule it breaks, and where.
    pub fn parse(text: &str) -> Result<Self, String> {
        if !text.ends_with('\n') {
            return Err("the last line does not end".to_owned());
        }
        let mut page = Self::default();
        let (mut helped, mut current) = (None, String::new());
        let mut series = BTreeSet::new();
        for line in text.lines() {
            let wrong = |why: &str| format!("{why}: {line}");
            if let Some(rest) = line.strip_prefix("# HELP ") {
                let (name, help) = rest.split_once(' ').ok_or_else(|| wrong("no help"))?;
                if !is_name(name) || help.is_empty() || help.contains('\\') {
                    return Err(wrong("not a help"));
                }
                helped = Some(name.to_owned());
            } else if let Some(rest) = line.strip_prefix("# TYPE ") {
                let (name, kind) = rest.split_once(' ').ok_or_else(|| wrong("no type"))?;
                if helped.take().as_deref() != Some(name) {
                    return Err(wrong("a type without its help"));
                }
                let is_counter = name.ends_with("_total");
                match kind {
                    "counter" if is_counter => {}
                    "gauge" | "histogram" if !is_counter => {}
                    _ => return Err(wrong("a type that its name does not tell")),
                }
                if page.families.insert(name.to_owned(), kind.to_owned()).is_some() {
                    return Err(wrong("a family twice"));
                }
                name.clone_into(&mut current);
            } else {
                let sample = parse_sample(line).ok_or_else(|| wrong("not a sample"))?;
                let kind = page.families.get(&current).map_or("", String::as_str);
                let is_own = match sample.name.strip_prefix(&current) {
                    Some("") => kind != "histogram",
                    Some("_bucket" | "_sum" | "_count") => kind == "histogram",
                    _ => false,
                };
                if helped.is_some() || !is_own {
                    return Err(wrong("a sample outside its family"));
                }
                if kind != "gauge" && (sample.value < 0.0 || sample.value.is_nan()) {
                    return Err(wrong("a count below zero"));
                }
                if !series.insert((sample.name.clone(), sample.labels.clone())) {
                    return Err(wrong("a series twice"));
                }
                page.samples.push(sample);
            }
        }
        page.check_histograms()?;
        Ok(page)
    }

    /// The samples of this name that have these labels, added up; zero if there are none.
    pub fn sum(&self, name: &str, labels: &[(&str, &str)]) -> f64 {
        self.samples(name, labels).map(|sample| sample.value).sum()
    }

    /// The one sample of this name that has these labels.
    ///
    /// # Panics
    ///
    /// When there is none, or more than one.
    pub fn value(&self, name: &str, labels: &[(&str, &str)]) -> f64 {
        let found: Vec<_> = self.samples(name, labels).collect();
        assert_eq!(found.len(), 1, "{name} {labels:?}: {found:?}");
        found[0].value
    }

    /// The samples of this name that have these labels.
    pub fn samples<'p>(
        &'p self,
        name: &'p str,
        labels: &'p [(&'p str, &'p str)],
    ) -> impl Iterator<Item = &'p Sample> {
        let has = |sample: &Sample| {
            labels
                .iter()
                .all(|(label, value)| sample.labels.get(*label).is_some_and(|it| it == value))
        };
        self.samples.iter().filter(move |sample| sample.name == name && has(sample))
    }

    /// Buckets grow up to the count, which the last of them, without a bound, has too.
    fn check_histograms(&self) -> Result<(), String> {
        for (family, _) in self.families.iter().filter(|(_, kind)| *kind == "histogram") {
            let (buckets, count) = (format!("{family}_bucket"), format!("{family}_count"));
            for total in self.samples(&count, &[]) {
                let labels: Vec<_> = total
                    .labels
                    .iter()
                    .map(|(name, value)| (name.as_str(), value.as_str()))
                    .collect();
                let bounds: Option<Vec<_>> = self
                    .samples(&buckets, &labels)
                    .map(|it| Some((it.labels.get("le")?.parse::<f64>().ok()?, it.value)))
                    .collect();
                let bounds = bounds.ok_or_else(|| format!("{family}: a bucket without a bound"))?;
                let grows = bounds.is_sorted_by(|a, b| a.0 < b.0 && a.1 <= b.1);
                if !grows || bounds.last() != Some(&(f64::INFINITY, total.value)) {
                    return Err(format!("{family}: the buckets do not add up: {bounds:?}"));
                }
                if self.samples(&format!("{family}_sum"), &labels).count() != 1 {
                    return Err(format!("{family}: no sum"));
                }
            }
        }
        Ok(())
    }
}

fn parse_sample(line: &str) -> Option<Sample> {
    let name_end = line.find(['{', ' '])?;
    let (name, mut rest) = line.split_at(name_end);
    let mut labels = BTreeMap::new();
    if let Some(inside) = rest.strip_prefix('{') {
        rest = inside;
        loop {
            let (label, after) = rest.split_once("=\"")?;
            let (value, after) = quoted(after)?;
            if !is_name(label)
                || label.contains(':')
                || labels.insert(label.to_owned(), value).is_some()
            {
                return None;
            }
            match after.strip_prefix(',') {
                Some(more) => rest = more,
                None => {
                    rest = after.strip_prefix('}')?;
                    break;
                }
            }
        }
    }
    let value = rest.strip_prefix(' ')?;
    let is_number = !value.is_empty() && !value.contains(' ');
    let value = value.parse().ok().filter(|_| is_number)?;
    is_name(name).then(|| Sample { name: name.to_owned(), labels, value })
}

/// The value of a label up to its closing quote, and what follows.
fn quoted(text: &str) -> Option<(String, &str)> {
    let (mut value, mut letters) = (String::new(), text.char_indices());
    while let Some((at, letter)) = letters.next() {
        match letter {
            '"' => return Some((value, &text[at + 1..])),
            '\\' => value.push(match letters.next()?.1 {
                'n' => '\n',
                escaped @ ('\\' | '"') => escaped,
                _ => return None,
            }),
            letter => value.push(letter),
        }
    }
    None
}

fn is_name(text: &str) -> bool {
    let is_letter = |letter: char| letter.is_ascii_alphabetic() || matches!(letter, '_' | ':');
    text.starts_with(is_letter) && text.chars().all(|it| is_letter(it) || it.is_ascii_digit())
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEAD: &str = "# HELP a_total Some.\n# TYPE a_total counter\n";

    fn check(text: &str, is_right: bool) {
        assert_eq!(Page::parse(text).is_ok(), is_right, "{text}: {:?}", Page::parse(text));
    }

    #[test]
    fn a_page_that_follows_the_rules_is_read() {
        let page =
            Page::parse(&format!("{HEAD}a_total{{b=\"x\\\"\\n\\\\\"}} 2\na_total 1.5\n")).unwrap();
        assert_eq!(page.value("a_total", &[("b", "x\"\n\\")]), 2.0);
        assert_eq!(page.sum("a_total", &[]), 3.5);
        check(HEAD, true);
        let histogram = "# HELP h It.\n# TYPE h histogram\nh_bucket{le=\"1\"} 1\n\
                         h_bucket{le=\"+Inf\"} 2\nh_sum 3\nh_count 2\n";
        check(histogram, true);
        check(&histogram.replace("} 2", "} 3"), false);
        check(&histogram.replace("} 1", "} 9"), false);
        check(&histogram.replace("h_sum 3\n", ""), false);
    }

    #[test]
    fn whatever_breaks_a_rule_is_refused() {
        for sample in [
            "a_total 1 ",
            "a_total  1",
            "a_total",
            "a_total one",
            "a_total -1",
            "a_total NaN",
            "b_total 1",
            "a_total{} 1",
            "a_total{b=\"x} 1",
            "a_total{b=\"\\x\"} 1",
            "a_total{b=\"1\",b=\"2\"} 1",
            "a_total{0=\"1\"} 1",
            "a_total 1\na_total 1",
            "",
            "# note",
            "a_total_sum 1",
        ] {
            check(&format!("{HEAD}{sample}\n"), false);
        }
        check(&format!("{HEAD}a_total 1"), false);
        check(&format!("{HEAD}{HEAD}"), false);
        check("a_total 1\n", false);
        check("# TYPE a_total counter\na_total 1\n", false);
        check("# HELP a Some.\n# TYPE a counter\n", false);
    }
}
