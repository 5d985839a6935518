//! How errors are told: with their causes, in one line.

use std::error::Error;

/// An error and its causes, in one line.
pub fn chain(error: &dyn Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        text += &format!(": {cause}");
        source = cause.source();
    }
    text
}

#[cfg(test)]
mod tests {
    use std::io;

    use super::*;

    #[derive(Debug, thiserror::Error)]
    #[error("the file cannot be read")]
    struct Unreadable(#[source] io::Error);

    #[test]
    fn causes_follow_what_they_caused() {
        let error = Unreadable(io::Error::other("the disk is gone"));
        assert_eq!(chain(&error), "the file cannot be read: the disk is gone");
    }
}
