//! The daemon without native steps: pipelines from files, steps from programs.

use std::process::ExitCode;

fn main() -> ExitCode {
    ductwork::Program::new().main()
}
