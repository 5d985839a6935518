//! A file of variables, `NAME=value` on each line, as mcpo reads it for `--env-path`.
//!
//! Comments, `export`, quotes, values of several lines, and `${NAME}` or `${NAME:-else}` for what stood before or the
//! environment has. What is no such line is left out.

/// The variables in this text, in its order. What `environment` has goes before what the text says.
pub(super) fn variables(
    text: &str,
    environment: impl Fn(&str) -> Option<String>,
) -> Vec<(String, String)> {
    let mut rest = text;
    let mut found: Vec<(String, String)> = Vec::new();
    while !rest.is_empty() {
        let (line, after) = binding(rest);
        rest = after;
        let Some((name, value)) = line else { continue };
        // No process can have such a variable.
        if name.contains(['=', '\0']) || value.contains('\0') {
            continue;
        }
        let known = |wanted: &str| {
            let before = || found.iter().rfind(|(name, _)| name == wanted);
            environment(wanted).or_else(|| before().map(|(_, value)| value.clone()))
        };
        let value = filled(&value, known);
        found.push((name, value));
    }
    found
}

/// The variable that the text begins with, if it is one, and what follows.
fn binding(text: &str) -> (Option<(String, String)>, &str) {
    let text = text.trim_start();
    let after_line = || text.split_once(['\n', '\r']).map_or("", |(_, after)| after);
    let named = text.strip_prefix("export").filter(|it| it.starts_with(is_space));
    let named = named.unwrap_or(text).trim_start_matches(is_space);
    let (name, rest) = match named.strip_prefix('\'') {
        Some(quoted) => quoted.split_once('\'').unwrap_or_default(),
        None => named.split_at(
            named.find(|c: char| c.is_whitespace() || "=#".contains(c)).unwrap_or(named.len()),
        ),
    };
    let value = rest.trim_start_matches(is_space).strip_prefix('=').filter(|_| !name.is_empty());
    let Some(value) = value.map(|value| value.trim_start_matches(is_space)) else {
        return (None, after_line());
    };
    let (value, rest) = match value.chars().next() {
        Some(quote @ ('"' | '\'')) => match quoted(&value[1..], quote) {
            Some((value, rest)) => (value, rest.trim_start_matches(is_space)),
            None => return (None, after_line()),
        },
        _ => {
            let (line, rest) = value.split_at(value.find(['\n', '\r']).unwrap_or(value.len()));
            (without_comment(line).to_owned(), rest)
        }
    };
    let is_end = rest.is_empty() || rest.starts_with(['\n', '\r', '#']);
    let after = rest.split_once(['\n', '\r']).map_or("", |(_, after)| after);
    (is_end.then(|| (name.to_owned(), value)), after)
}

/// A value up to its closing quote, which may be some lines away, and what follows it.
fn quoted(text: &str, quote: char) -> Option<(String, &str)> {
    let mut end = None;
    for (at, _) in text.match_indices(quote) {
        end = Some(at);
        // Where there is no other, also one that is escaped ends it.
        if !text[..at].ends_with('\\') {
            break;
        }
    }
    let end = end?;
    Some((unescaped(&text[..end], quote), &text[end + 1..]))
}

fn unescaped(text: &str, quote: char) -> String {
    let mut value = String::with_capacity(text.len());
    let mut letters = text.chars();
    while let Some(letter) = letters.next() {
        let next = letters.clone().next().filter(|_| letter == '\\');
        let meant = next.and_then(|escaped| match escaped {
            '\\' | '\'' => Some(escaped),
            _ if quote == '\'' => None,
            '"' => Some('"'),
            'a' => Some('\x07'),
            'b' => Some('\x08'),
            'f' => Some('\x0c'),
            'n' => Some('\n'),
            'r' => Some('\r'),
            't' => Some('\t'),
            'v' => Some('\x0b'),
            _ => None,
        });
        if meant.is_some() {
            letters.next();
        }
        value.push(meant.unwrap_or(letter));
    }
    value
}

/// A value without quotes ends where a comment begins.
fn without_comment(line: &str) -> &str {
    let comment =
        line.char_indices().find(|&(at, c)| c == '#' && line[..at].ends_with(char::is_whitespace));
    line[..comment.map_or(line.len(), |(at, _)| at)].trim_end()
}

/// A value with its `${NAME}` filled in.
fn filled(value: &str, known: impl Fn(&str) -> Option<String>) -> String {
    let mut out = String::with_capacity(value.len());
    let mut rest = value;
    while let Some((before, reference)) = rest.split_once("${") {
        let Some((reference, after)) = reference.split_once('}') else { break };
        let (name, otherwise) = reference.split_once(":-").unwrap_or((reference, ""));
        out.push_str(before);
        match name.contains(':') {
            true => out.extend(["${", reference, "}"]),
            false => out.push_str(&known(name).unwrap_or_else(|| otherwise.to_owned())),
        }
        rest = after;
    }
    out + rest
}

/// A space within a line.
fn is_space(letter: char) -> bool {
    letter.is_whitespace() && !matches!(letter, '\n' | '\r')
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(text: &str, expected: &[(&str, &str)]) {
        let environment = |name: &str| (name == "OUTSIDE").then(|| "out".to_owned());
        let found = variables(text, environment);
        let found: Vec<_> =
            found.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
        assert_eq!(found, expected, "{text}");
    }

    #[test]
    fn lines_are_variables_and_what_is_none_is_left_out() {
        check(
            "# a comment\nexport A=1 # one\nB='x # y'\n C = \"z\" \n\nno line\nD=\nE=a#b\r\nexported=2\n'F G'=3\nH",
            &[
                ("A", "1"),
                ("B", "x # y"),
                ("C", "z"),
                ("D", ""),
                ("E", "a#b"),
                ("exported", "2"),
                ("F G", "3"),
            ],
        );
        check("", &[]);
        check("A='open\nB=2", &[("B", "2")]);
        check("A='x' y\nB=\"1\" # c\nC=\"2\"#c", &[("B", "1"), ("C", "2")]);
        check("=x\nA==y", &[("A", "=y")]);
        check("'C=D'=1\nE=\0\nF=1", &[("F", "1")]);
    }

    #[test]
    fn values_in_quotes_may_have_several_lines_and_escapes() {
        check("A=\"one\ntwo\"\nB=2", &[("A", "one\ntwo"), ("B", "2")]);
        check(r#"A="a\tb\"c\\d\q""#, &[("A", "a\tb\"c\\d\\q")]);
        check(r"A='a\tb\'c\\d'", &[("A", r"a\tb'c\d")]);
        check("A='C:\\dir\\'\nB=2", &[("A", "C:\\dir\\"), ("B", "2")]);
        check("A=\"\"\nB=''\nC='", &[("A", ""), ("B", "")]);
    }

    #[test]
    fn references_are_filled_with_what_is_known() {
        check(
            "A=1\nB=${A}/${OUTSIDE}\nC='${GONE:-else}${GONE}'\nOUTSIDE=in\nD=${OUTSIDE}\nE=$A ${A",
            &[
                ("A", "1"),
                ("B", "1/out"),
                ("C", "else"),
                ("OUTSIDE", "in"),
                ("D", "out"),
                ("E", "$A ${A"),
            ],
        );
    }
}
