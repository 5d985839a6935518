//! Names as mcpo writes them: ids of operations, and names of schemas.

use std::collections::HashMap;

/// The id of the operation that is this tool: what Open WebUI shows the model as its name.
pub(super) fn operation_id(tool: &str) -> String {
    format!("tool_{}_post", bare_id(tool))
}

/// The same without what mcpo puts around the name of the tool.
pub(super) fn bare_id(tool: &str) -> String {
    // mcpo leaves letters of every language in, which no model takes as the name of a function.
    let id = |letter: char| if letter.is_ascii_alphanumeric() { letter } else { '_' };
    tool.chars().map(id).collect()
}

/// The name of a component: what OpenAPI allows there.
pub(super) fn component(name: &str) -> String {
    let fit = |letter: char| match letter {
        'a'..='z' | 'A'..='Z' | '0'..='9' | '.' | '_' | '-' => letter,
        _ => '_',
    };
    name.chars().map(fit).collect()
}

/// Names of one kind in a document, each once: `get-sum` and `get_sum` would be one.
pub(super) struct Names {
    of: fn(&str) -> String,
    /// How far each was numbered.
    last: HashMap<String, u32>,
}

impl Names {
    /// None yet, of this kind.
    pub(super) fn new(of: fn(&str) -> String) -> Self {
        Self { of, last: HashMap::new() }
    }

    /// The name for this tool; with a number where another tool has it.
    pub(super) fn add(&mut self, tool: &str) -> String {
        let name = (self.of)(tool);
        let Some(last) = self.last.get(&name).copied() else {
            self.last.insert(name.clone(), 1);
            return name;
        };
        let mut numbered = (last + 1..).map(|number| (number, format!("{name}_{number}")));
        let free = numbered.find(|(_, numbered)| !self.last.contains_key(numbered));
        let Some((number, numbered)) = free else { return name };
        self.last.insert(name, number);
        self.last.insert(numbered.clone(), 1);
        numbered
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_that_another_tool_has_gets_a_number() {
        let mut names = Names::new(component);
        let found: Vec<_> = ["a/b", "a_b_2", "a_b", "a b", "\u{8aad}", "\u{66f8}"]
            .iter()
            .map(|tool| names.add(tool))
            .collect();
        assert_eq!(found, ["a_b", "a_b_2", "a_b_3", "a_b_4", "_", "__2"]);
    }

    #[test]
    fn ids_have_letters_digits_and_underscores() {
        assert_eq!(operation_id("get-sum"), "tool_get_sum_post");
        assert_eq!(operation_id("a.b/c_größe"), "tool_a_b_c_gr__e_post");
        assert_eq!(component("a b/日"), "a_b__");
        for (tool, expected) in
            [("wait", "wait"), ("get-sum", "get_sum"), ("group/tool", "group_tool"), ("読む", "__")]
        {
            assert_eq!(bare_id(tool), expected);
            assert_eq!(operation_id(tool), format!("tool_{expected}_post"));
        }
        let mut bare = Names::new(bare_id);
        let found = ["group/tool", "group_tool", "読む", "書く"].map(|tool| bare.add(tool));
        assert_eq!(found, ["group_tool", "group_tool_2", "__", "___2"]);
    }
}
