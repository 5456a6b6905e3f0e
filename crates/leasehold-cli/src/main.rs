//! The `leasehold` command.

fn main() -> std::process::ExitCode {
    // First: the processes that watch over commands are this program, started again.
    leasehold_fence::enter();
    leasehold_cli::main()
}
