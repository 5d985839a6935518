//! Files that tools have made, for people to download.
//!
//! What comes in: a request for `/files/{job}/{path}`. What goes out: the file or a part of it, as an attachment. Nothing
//! here changes a file, lists a directory, or opens a path by itself: `jobs` does that, beneath the job's own directory.

pub mod downloads;
pub mod file_body;
pub mod link;
pub mod ranges;
