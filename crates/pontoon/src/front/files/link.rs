//! Which file an address means: `/files/{job}/{path}`, decoded exactly once.

use percent_encoding::percent_decode_str;

/// Which file a request names.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FileAddress {
    /// The job, decoded.
    pub job: String,
    /// The path in it, decoded, with `/` between its parts.
    pub path: String,
    /// What stood behind the `?`.
    pub query: Option<String>,
}

impl FileAddress {
    /// The file that an address names; `None` if it can name none.
    pub fn parse(path: &str, query: Option<&str>) -> Option<Self> {
        let mut parts = path.strip_prefix("/files/")?.split('/').map(decode);
        let job = parts.next()??;
        let path = parts.collect::<Option<Vec<_>>>()?.join("/");
        (!path.is_empty()).then(|| Self { job, path, query: query.map(str::to_owned) })
    }
}

/// One part of a path as it was before it was encoded, exactly once.
///
/// `None` if it was encoded wrongly, or is now no single name: then no file can be meant.
fn decode(part: &str) -> Option<String> {
    let is_encoded_well = part.split('%').skip(1).all(|rest| {
        let code = rest.as_bytes().get(..2);
        code.is_some_and(|code| code.iter().all(u8::is_ascii_hexdigit))
    });
    let name = percent_decode_str(part).decode_utf8().ok().filter(|_| is_encoded_well)?;
    let is_name = !matches!(name.as_ref(), "" | "." | "..");
    (is_name && !name.contains(['/', '\\', '\0'])).then(|| name.into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    const JOB: &str = "0f6c1d1e-3c5b-4a5e-9d53-0a1b2c3d4e5f";

    /// Compares the path that is found behind the job; `None` if no file can be meant.
    #[track_caller]
    fn check(path: &str, expected: Option<&str>) {
        let found = FileAddress::parse(&format!("/files/{JOB}/{path}"), Some("q"));
        assert_eq!(found.as_ref().map(|link| link.path.as_str()), expected, "{path}");
    }

    #[test]
    fn a_path_is_decoded_exactly_once() {
        check("a.txt", Some("a.txt"));
        check("sub/a%20b.txt", Some("sub/a b.txt"));
        check("%E8%B3%87%E6%96%99.pptx", Some("資料.pptx"));
        check("資料.pptx", Some("資料.pptx"));
        check("a+b", Some("a+b"));
        // One decoding more would be a way out.
        check("%252e%252e", Some("%2e%2e"));
        check("%252f", Some("%2f"));
        for path in [
            "",
            ".",
            "..",
            "../x",
            "a/../b",
            "./a",
            "a/.",
            "a//b",
            "/a",
            "a/",
            "%2e",
            "%2e%2e",
            ".%2e/x",
            "%2E%2E/x",
            "..%2fx",
            "a%2fb",
            "a%2Fb",
            "%2fetc%2fpasswd",
            "a\\b",
            "a%5cb",
            "..%5c..%5cx",
            "a%00",
            "%00",
            "%",
            "%2",
            "a%zz",
            "a%2",
            "%+1",
            "%u002e",
            "%ff",
            "%c0%ae",
            "%c0%af",
            "%e0%80%af",
            "%ed%a0%80",
            "%f8%80%80%80%ae",
        ] {
            check(path, None);
        }
        assert_eq!(FileAddress::parse("/files/", None), None);
        assert_eq!(FileAddress::parse("/files/%2e%2e/a", None), None);
        assert_eq!(FileAddress::parse("/file/a/b", None), None);
    }
}
