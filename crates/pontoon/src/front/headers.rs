//! Headers that may stand once: two readers of a request must not be able to choose differently.

use std::fmt::Display;

use hyper::HeaderMap;
use hyper::header::{AsHeaderName, HeaderValue};

use super::refusal::Refusal;

/// The only value of a header, if it is there.
///
/// # Errors
///
/// 400 when it stands twice.
pub fn only<N: AsHeaderName + Display + Copy>(
    headers: &HeaderMap,
    name: N,
) -> Result<Option<&HeaderValue>, Refusal> {
    let mut values = headers.get_all(name).iter();
    match (values.next(), values.next()) {
        (_, Some(_)) => {
            Err(Refusal::invalid(400, format!("the header {name} stands twice: send it once")))
        }
        (first, None) => Ok(first),
    }
}

/// The same as a text, without spaces around it.
///
/// # Errors
///
/// 400 when it stands twice, or is not plain text.
pub fn only_text<N: AsHeaderName + Display + Copy>(
    headers: &HeaderMap,
    name: N,
) -> Result<Option<&str>, Refusal> {
    let text = only(headers, name)?.map(|value| value.to_str().map(str::trim)).transpose();
    text.map_err(|_| Refusal::invalid(400, format!("the header {name} is not text")))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Compares what is read of these values of one header; of a refusal, its text.
    #[track_caller]
    fn check(values: &[&[u8]], expected: Result<Option<&str>, &str>) {
        let mut headers = HeaderMap::new();
        for value in values {
            headers.append("x-name", HeaderValue::from_bytes(value).unwrap());
        }
        let found = only_text(&headers, "x-name");
        let found = found.as_ref().map(|value| *value).map_err(Refusal::text);
        assert_eq!(found, expected, "{values:?}");
    }

    #[test]
    fn a_header_is_read_only_if_it_stands_once() {
        check(&[], Ok(None));
        check(&[b" a\tb "], Ok(Some("a\tb")));
        check(&[b"a", b"a"], Err("the header x-name stands twice: send it once"));
        check(&["é".as_bytes()], Err("the header x-name is not text"));
    }
}
