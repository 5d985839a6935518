//! How many processors this program may use.

use std::sync::LazyLock;
use std::thread;

/// How many processors this program may use; 1 where the system does not tell. The system is asked once: on Linux the
/// answer is spread over half a dozen files.
pub fn processors() -> usize {
    static FOUND: LazyLock<usize> =
        LazyLock::new(|| thread::available_parallelism().map_or(1, usize::from));
    *FOUND
}
