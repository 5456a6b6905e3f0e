//! The `leasehold` command.

fn main() -> std::process::ExitCode {
    leasehold_cli::main()
}
