//! Numbers and words that clients write as a text or as another number, read as Python's Pydantic reads them.

/// No whole number of more digits is read from a text.
pub(super) const MAX_DIGITS: usize = 4300;

/// The whole number that a text is: `12`, `+12`, ` 1_000 `, `12.0`.
pub(super) fn whole_of_text(text: &str) -> Option<String> {
    let text = text.trim();
    let (sign, digits) = match text.as_bytes().first()? {
        b'-' => ("-", &text[1..]),
        b'+' => ("", &text[1..]),
        _ => ("", text),
    };
    let digits = match digits.split_once('.') {
        Some((whole, zeros)) if !zeros.is_empty() && zeros.bytes().all(|it| it == b'0') => whole,
        Some(_) => return None,
        None => digits,
    };
    let digits = plain_digits(digits)?;
    let digits = digits.trim_start_matches('0');
    Some(if digits.is_empty() { "0".to_owned() } else { format!("{sign}{digits}") })
}

/// The number that a text is, in words of JSON.
pub(super) fn number_of_text(text: &str) -> Option<String> {
    let text = text.trim();
    let is_well = !text.starts_with('_') && !text.ends_with('_') && !text.contains("__");
    let text = &*text.replace('_', "");
    let (sign, rest) = match text.as_bytes().first()? {
        b'-' => ("-", &text[1..]),
        b'+' => ("", &text[1..]),
        _ => ("", text),
    };
    let (rest, exponent) = match rest.split_once(['e', 'E']) {
        Some((rest, exponent)) => (rest, Some(exponent)),
        None => (rest, None),
    };
    let (whole, part) = match rest.split_once('.') {
        Some((whole, part)) => (whole, Some(part)),
        None => (rest, None),
    };
    if !is_well || (whole.is_empty() && part.is_none_or(str::is_empty)) {
        return None;
    }
    let digits =
        |text: &str| if text.is_empty() { Some(String::new()) } else { plain_digits(text) };
    let whole = digits(whole)?;
    let whole = whole.trim_start_matches('0');
    let mut number = format!("{sign}{}", if whole.is_empty() { "0" } else { whole });
    if let Some(part) = part {
        let part = digits(part)?;
        number.push('.');
        number.push_str(if part.is_empty() { "0" } else { &part });
    }
    if let Some(exponent) = exponent {
        let (sign, exponent) = match exponent.as_bytes().first()? {
            b'-' => ("-", &exponent[1..]),
            b'+' => ("", &exponent[1..]),
            _ => ("", exponent),
        };
        number.push_str(&format!("e{sign}{}", plain_digits(exponent)?));
    }
    // What has no end has no words in JSON.
    number.parse::<f64>().is_ok_and(f64::is_finite).then_some(number)
}

/// Digits without the lines between them.
fn plain_digits(text: &str) -> Option<String> {
    let is_well =
        text.split('_').all(|it| !it.is_empty() && it.bytes().all(|it| it.is_ascii_digit()));
    is_well.then(|| text.replace('_', ""))
}

/// What a number with a point or an exponent is as a whole number.
pub(super) enum Whole {
    /// It has a fractional part.
    None,
    /// This one.
    Some(String),
    /// It is one, and too long to be written out.
    Long,
}

/// The whole number that a JSON number is.
pub(super) fn whole_of_number(number: &str) -> Whole {
    if let Some((whole, zeros)) = number.split_once('.')
        && zeros.bytes().all(|it| it == b'0')
    {
        return Whole::Some(if whole == "-0" { "0".to_owned() } else { whole.to_owned() });
    }
    match number.parse::<f64>() {
        Ok(size) if size.fract() == 0.0 && size.abs() < 9e15 => {
            Whole::Some((size as i64).to_string())
        }
        Ok(size) if size.is_finite() && size.fract() != 0.0 => Whole::None,
        _ => Whole::Long,
    }
}

/// What a text says as yes or no.
pub(super) fn bool_of_text(text: &str) -> Option<bool> {
    let is_one_of = |words: &[&str]| words.iter().any(|it| text.eq_ignore_ascii_case(it));
    match text {
        _ if is_one_of(&["1", "true", "t", "yes", "y", "on"]) => Some(true),
        _ if is_one_of(&["0", "false", "f", "no", "n", "off"]) => Some(false),
        _ => None,
    }
}
