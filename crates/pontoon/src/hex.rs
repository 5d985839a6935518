//! Bytes as lower-case hexadecimal digits.

/// Two digits for each byte.
pub fn hex(bytes: &[u8]) -> String {
    let digit = |value: u8| b"0123456789abcdef"[usize::from(value)];
    let mut digits = Vec::with_capacity(2 * bytes.len());
    for byte in bytes {
        digits.extend_from_slice(&[digit(byte >> 4), digit(byte & 15)]);
    }
    String::from_utf8(digits).expect("digits are text")
}

/// The bytes that [`hex`] wrote; `None` for any other text, one of another length too.
pub fn from_hex<const BYTES: usize>(text: &str) -> Option<[u8; BYTES]> {
    let digit = |byte: u8| match byte {
        b'0'..=b'9' => Some(byte - b'0'),
        b'a'..=b'f' => Some(byte - b'a' + 10),
        _ => None,
    };
    let (pairs, rest) = text.as_bytes().as_chunks::<2>();
    let bytes: Option<Vec<u8>> =
        pairs.iter().map(|&[high, low]| Some(digit(high)? << 4 | digit(low)?)).collect();
    if rest.is_empty() { bytes?.try_into().ok() } else { None }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_byte_is_two_digits() {
        assert_eq!(hex(&[]), "");
        assert_eq!(hex(&[0, 1, 0x7f, 0xa0, 0xff]), "00017fa0ff");
    }

    #[test]
    fn only_what_was_written_so_is_read() {
        assert_eq!(from_hex("00017fa0ff"), Some([0, 1, 0x7f, 0xa0, 0xff]));
        for wrong in
            ["", "00", "00017fa0f", "00017fa0ff0", "00017FA0FF", "+0017fa0ff", "0x017fa0ff"]
        {
            assert_eq!(from_hex::<5>(wrong), None, "{wrong}");
        }
    }
}
