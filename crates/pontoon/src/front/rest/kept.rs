//! Documents that were written, kept until what they are made of is another: Open WebUI asks for them in every turn, and
//! anybody may.

use std::collections::HashMap;
use std::sync::{Arc, Weak};

use bytes::Bytes;

use crate::config::Server;
use crate::lock::Lock;
use crate::session::catalog::Catalog;

/// A server, and what it offers where that is known.
pub(super) type Known = (Arc<Server>, Option<Arc<Catalog>>);

/// The last document of each path, by the path.
#[derive(Debug, Default)]
pub struct KeptDocuments(Lock<HashMap<String, KeptDocument>>);

#[derive(Debug)]
struct KeptDocument {
    made_of: Vec<(Weak<Server>, Option<Weak<Catalog>>)>,
    text: Bytes,
}

impl KeptDocuments {
    /// The document of a path, which is written if there is none of these servers.
    pub(super) fn of(
        &self,
        path: &str,
        servers: &[Known],
        write: impl FnOnce() -> String,
    ) -> Bytes {
        if let Some(kept) = self.0.lock().get(path)
            && kept.is_of(servers)
        {
            return kept.text.clone();
        }
        let text = Bytes::from(write());
        let made_of = servers.iter().map(|(server, catalog)| {
            (Arc::downgrade(server), catalog.as_ref().map(Arc::downgrade))
        });
        let kept = KeptDocument { made_of: made_of.collect(), text: text.clone() };
        self.0.lock().insert(path.to_owned(), kept);
        text
    }
}

impl KeptDocument {
    fn is_of(&self, servers: &[Known]) -> bool {
        let is_same =
            |((server, catalog), known): (&Known, &(Weak<Server>, Option<Weak<Catalog>>))| {
                let same_catalog = match (catalog, &known.1) {
                    (Some(catalog), Some(known)) => Arc::as_ptr(catalog) == known.as_ptr(),
                    (None, None) => true,
                    _ => false,
                };
                same_catalog && Arc::as_ptr(server) == known.0.as_ptr()
            };
        self.made_of.len() == servers.len() && servers.iter().zip(&self.made_of).all(is_same)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_document_is_written_once_for_what_it_is_made_of() {
        let server = || {
            let plain = Server::new("demo".parse().unwrap(), Ok("/bin/demo".into()), Vec::new());
            Arc::new(plain)
        };
        let documents = KeptDocuments::default();
        let (one, other) = (server(), server());
        let (old, new) = (Arc::new(Catalog::default()), Arc::new(Catalog::default()));
        let mut written = Vec::new();
        for (path, made_of, is_written) in [
            ("/demo", vec![(&one, Some(&old))], true),
            ("/demo", vec![(&one, Some(&old))], false),
            ("/rp/demo", vec![(&one, Some(&old))], true),
            ("/demo", vec![(&one, None)], true),
            ("/demo", vec![(&one, Some(&new))], true),
            ("/demo", vec![(&other, Some(&new))], true),
            ("/demo", vec![(&one, Some(&new)), (&other, None)], true),
            ("/demo", vec![(&one, Some(&new)), (&other, None)], false),
        ] {
            let known: Vec<Known> = made_of
                .iter()
                .map(|(server, catalog)| (Arc::clone(server), catalog.map(Arc::clone)))
                .collect();
            let number = written.len();
            let text = documents.of(path, &known, || {
                written.push(path);
                format!("{number}")
            });
            assert_eq!(written.len() > number, is_written, "{path} {number}");
            let expected = if is_written { number } else { number - 1 };
            assert_eq!(text, format!("{expected}"));
        }
    }
}
