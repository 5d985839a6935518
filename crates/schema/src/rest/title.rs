//! Titles, made of names as mcpo makes them.

/// The title of a property.
pub(super) fn title(name: &str) -> String {
    capitalised(name).trim().to_owned()
}

/// The words of a name, each with a capital letter, as Python has it: `get-env_now` is `Get-Env Now`.
pub fn capitalised(name: &str) -> String {
    let mut title = String::with_capacity(name.len());
    let mut is_inside = false;
    for letter in name.chars() {
        let is_cased = letter.is_lowercase() || letter.is_uppercase();
        if is_inside {
            title.extend(letter.to_lowercase());
        } else {
            let mut capital = letter.to_uppercase();
            title.extend(capital.next());
            // One letter may become two, as in `Ss`.
            title.extend(capital.flat_map(char::to_lowercase));
        }
        is_inside = is_cased;
    }
    title.replace('_', " ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_become_titles() {
        for (name, expected) in [
            ("timezone", "Timezone"),
            ("messageType", "Messagetype"),
            ("get-env", "Get-Env"),
            ("source_timezone", "Source Timezone"),
            ("__top", "Top"),
            ("a1b", "A1B"),
            ("it's", "It'S"),
            ("日本", "日本"),
            ("日本x", "日本X"),
            ("ßa", "Ssa"),
            ("", ""),
        ] {
            assert_eq!(title(name), expected);
        }
    }
}
