//! The `pontoon` command.

fn main() -> std::process::ExitCode {
    pontoon::cli::main()
}
