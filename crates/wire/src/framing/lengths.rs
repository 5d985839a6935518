//! The headers of `Content-Length` frames, as the Language Server Protocol has them.

/// The length that a header line tells, if it is that header.
pub fn content_length(line: &[u8]) -> Option<usize> {
    let length = after_name(line, b"content-length:")?;
    std::str::from_utf8(length).ok()?.trim().parse().ok()
}

/// Whether a line is the other header that frames may have.
pub(super) fn is_other_header(line: &[u8]) -> bool {
    after_name(line, b"content-type:").is_some()
}

fn after_name<'l>(line: &'l [u8], name: &[u8]) -> Option<&'l [u8]> {
    let (start, rest) = line.split_at_checked(name.len())?;
    start.eq_ignore_ascii_case(name).then_some(rest)
}
