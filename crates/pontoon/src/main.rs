//! The `pontoon` command.

fn main() -> std::process::ExitCode {
    // A client waits for the tools of the bridge process, so nothing comes before it.
    if let Some(exit) = pontoon_host::bridge::dispatch() {
        return exit;
    }
    pontoon::cli::main()
}
