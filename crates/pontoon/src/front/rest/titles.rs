//! Names as mcpo writes them: titles for people, and ids of operations.

/// A name as a title: `get-env_now` is `Get-Env Now`.
pub(super) fn title(name: &str) -> String {
    let mut is_inside = false;
    let mut out = String::with_capacity(name.len());
    for letter in name.replace('_', " ").chars() {
        match letter.is_alphabetic() {
            true if is_inside => out.extend(letter.to_lowercase()),
            true => out.extend(letter.to_uppercase()),
            false => out.push(letter),
        }
        is_inside = letter.is_alphabetic();
    }
    out
}

/// The id of the operation that is this tool: what Open WebUI shows the model as its name.
pub(super) fn operation_id(tool: &str) -> String {
    // mcpo leaves letters of every language in, which no model takes as the name of a function.
    let id = |letter: char| if letter.is_ascii_alphanumeric() { letter } else { '_' };
    format!("tool_{}_post", tool.chars().map(id).collect::<String>())
}

/// The name of a component: what OpenAPI allows there.
pub(super) fn component(name: &str) -> String {
    let fit = |letter: char| match letter {
        'a'..='z' | 'A'..='Z' | '0'..='9' | '.' | '_' | '-' => letter,
        _ => '_',
    };
    name.chars().map(fit).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn titles_are_as_python_writes_them() {
        for (name, expected) in [
            ("get_current_time", "Get Current Time"),
            ("get-env", "Get-Env"),
            ("messageType", "Messagetype"),
            ("a1b", "A1B"),
            ("日本_x", "日本 X"),
        ] {
            assert_eq!(title(name), expected);
        }
    }

    #[test]
    fn ids_have_letters_digits_and_underscores() {
        assert_eq!(operation_id("get-sum"), "tool_get_sum_post");
        assert_eq!(operation_id("a.b/c_größe"), "tool_a_b_c_gr__e_post");
        assert_eq!(component("a b/日"), "a_b__");
    }
}
