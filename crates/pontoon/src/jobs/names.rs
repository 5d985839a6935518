//! Names: which files may be offered and downloaded, and what type each is called.
//!
//! A child chooses its own names, so a name is checked where it is found and again where it is
//! asked for. Everything here is a plain function over text.

/// The longest name of one file or folder, in bytes; file systems have the same limit.
pub(super) const MAX_NAME: usize = 255;

/// The longest path below `files/`, in bytes: percent-encoded it still fits a request line.
pub(super) const MAX_PATH: usize = 1024;

/// How deep below `files/` a file may be.
pub(super) const MAX_DEPTH: usize = 16;

/// Whether a file with this path below `files/` may be served: `a.txt`, `folder/a.txt`.
pub fn is_served(path: &str) -> bool {
    path.len() <= MAX_PATH && path.split('/').count() <= MAX_DEPTH && path.split('/').all(is_name)
}

/// Whether this may be the name of one file or folder.
pub(super) fn is_name(name: &str) -> bool {
    !name.is_empty()
        && name.len() <= MAX_NAME
        && !name.starts_with('.')
        && !name.chars().any(is_refused)
}

/// The name that comes closest to `wanted` and may be served.
pub(super) fn closest(wanted: &str) -> String {
    let last = wanted.rsplit(['/', '\\']).next().unwrap_or_default();
    let clean = |c| if is_refused(c) { '_' } else { c };
    let name: String = last.trim_start_matches('.').chars().map(clean).collect();
    let (stem, ending) = split_ending(&name);
    let name = shortened(stem, ending, "");
    if name.is_empty() { "file".to_owned() } else { name }
}

/// `name` with a number before its ending: `report (2).pdf`.
pub(super) fn numbered(name: &str, number: usize) -> String {
    let (stem, ending) = split_ending(name);
    shortened(stem, ending, &format!(" ({number})"))
}

/// The parts around the last dot, which belongs to the second; an overlong ending is none.
fn split_ending(name: &str) -> (&str, &str) {
    match name.rfind('.') {
        Some(at) if at > 0 && name.len() - at <= 32 => name.split_at(at),
        _ => (name, ""),
    }
}

fn shortened(stem: &str, ending: &str, mark: &str) -> String {
    let mut end = stem.len().min(MAX_NAME - ending.len() - mark.len());
    while !stem.is_char_boundary(end) {
        end -= 1;
    }
    format!("{}{mark}{ending}", &stem[..end])
}

/// Separators, and what would show a name other than it is.
fn is_refused(c: char) -> bool {
    c.is_control()
        || matches!(c, '/' | '\\' | '\u{2028}' | '\u{2029}')
        || matches!(c, '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

/// The media type of a file by the ending of its name; what is not in the table is just bytes.
pub fn media_type(path: &str) -> &'static str {
    let ending = path.rsplit('/').next().and_then(|name| name.rsplit_once('.'));
    let ending = ending.map_or_else(String::new, |(_, ending)| ending.to_ascii_lowercase());
    let found = MEDIA_TYPES.iter().find(|(known, _)| *known == ending);
    found.map_or("application/octet-stream", |(_, media_type)| media_type)
}

const MEDIA_TYPES: [(&str, &str); 40] = [
    ("bmp", "image/bmp"),
    ("css", "text/css; charset=utf-8"),
    ("csv", "text/csv; charset=utf-8"),
    ("doc", "application/msword"),
    ("docx", "application/vnd.openxmlformats-officedocument.wordprocessingml.document"),
    ("epub", "application/epub+zip"),
    ("gif", "image/gif"),
    ("gz", "application/gzip"),
    ("htm", "text/html; charset=utf-8"),
    ("html", "text/html; charset=utf-8"),
    ("ics", "text/calendar; charset=utf-8"),
    ("jpeg", "image/jpeg"),
    ("jpg", "image/jpeg"),
    ("js", "text/javascript; charset=utf-8"),
    ("json", "application/json"),
    ("log", "text/plain; charset=utf-8"),
    ("md", "text/markdown; charset=utf-8"),
    ("mp3", "audio/mpeg"),
    ("mp4", "video/mp4"),
    ("odp", "application/vnd.oasis.opendocument.presentation"),
    ("ods", "application/vnd.oasis.opendocument.spreadsheet"),
    ("odt", "application/vnd.oasis.opendocument.text"),
    ("ogg", "audio/ogg"),
    ("pdf", "application/pdf"),
    ("png", "image/png"),
    ("ppt", "application/vnd.ms-powerpoint"),
    ("pptx", "application/vnd.openxmlformats-officedocument.presentationml.presentation"),
    ("rtf", "application/rtf"),
    ("svg", "image/svg+xml"),
    ("tar", "application/x-tar"),
    ("tsv", "text/tab-separated-values; charset=utf-8"),
    ("txt", "text/plain; charset=utf-8"),
    ("wav", "audio/wav"),
    ("webm", "video/webm"),
    ("webp", "image/webp"),
    ("xls", "application/vnd.ms-excel"),
    ("xlsx", "application/vnd.openxmlformats-officedocument.spreadsheetml.sheet"),
    ("xml", "application/xml"),
    ("yaml", "application/yaml"),
    ("zip", "application/zip"),
];

#[cfg(test)]
mod tests {
    use super::*;

    fn check(path: &str, served: bool) {
        assert_eq!(is_served(path), served, "{path:?}");
    }

    #[test]
    fn names_of_all_languages_are_served() {
        let names =
            ["a", "売上報告.pptx", "folder/売上.xlsx", "cafe\u{301}.md", "a b (2).txt", "~x"];
        for name in names {
            check(name, true);
        }
    }

    #[test]
    fn names_that_lead_elsewhere_or_deceive_are_not() {
        let dots =
            ["", ".", "..", ".a", "a/.b", "a/..", "../a", "a/../b", "a//b", "/a", "a/", "./a"];
        let signs =
            ["a\\b", "..\\a", "a\0", "a\nb", "a\u{7f}", "a\u{85}", "gpj.\u{202e}exe", "\u{2066}a"];
        for name in dots.into_iter().chain(signs) {
            check(name, false);
        }
    }

    #[test]
    fn names_paths_and_depths_have_limits() {
        check(&"n".repeat(MAX_NAME), true);
        check(&"n".repeat(MAX_NAME + 1), false);
        check(&"あ".repeat(86), false);
        check(&vec!["n"; MAX_DEPTH].join("/"), true);
        check(&vec!["n"; MAX_DEPTH + 1].join("/"), false);
        check(&vec!["n".repeat(250); 5].join("/"), false);
    }

    #[test]
    fn the_closest_name_is_always_served() {
        let long = format!("{}.pptx", "あ".repeat(200));
        let wanted = ["", ".", "..", "../../x", "a\\b", ".hidden", "\0", "a\nb", "\u{202e}", &long];
        for wanted in wanted {
            let name = closest(wanted);
            check(&name, true);
            check(&numbered(&name, 1000), true);
        }
        assert_eq!(closest("C:\\temp\\売上.pptx"), "売上.pptx");
        assert_eq!(closest("../.bashrc"), "bashrc");
        assert!(closest(&long).ends_with("あ.pptx"));
        assert_eq!(numbered("report.pdf", 2), "report (2).pdf");
        assert_eq!(numbered("report", 3), "report (3)");
    }

    #[test]
    fn the_type_follows_the_ending() {
        assert!(MEDIA_TYPES.is_sorted(), "the table is in order");
        assert_eq!(media_type("a/B.PDF"), "application/pdf");
        assert_eq!(media_type("pdf"), "application/octet-stream");
        assert_eq!(media_type("a.pdf/b"), "application/octet-stream");
        assert_eq!(media_type("a.exe"), "application/octet-stream");
    }
}
