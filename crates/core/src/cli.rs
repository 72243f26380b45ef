//! Command lines that say in one line what is wrong with them.

use std::ffi::OsString;
use std::io::Write;
use std::process::ExitCode;

use clap::Parser;
use clap::error::ErrorKind;

/// Reads the command line. `Err` is the code to exit with, after help (0) or one line about what is wrong (2).
pub fn parse<T: Parser>(line: impl IntoIterator<Item = impl Into<OsString> + Clone>) -> Result<T, ExitCode> {
    T::try_parse_from(line).map_err(|error| match error.kind() {
        ErrorKind::DisplayHelp | ErrorKind::DisplayVersion => {
            // Printing help fails only if nobody reads it.
            let _ = error.print();
            ExitCode::SUCCESS
        }
        ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand => {
            let _ = error.print();
            ExitCode::from(2)
        }
        _ => {
            let _ = writeln!(std::io::stderr(), "{}", one_line(&error));
            ExitCode::from(2)
        }
    })
}

/// clap's words up to its usage, without the line breaks.
fn one_line(error: &clap::Error) -> String {
    let text = error.render().to_string();
    let said = text.lines().map(str::trim).take_while(|line| !line.starts_with("Usage:"));
    let said: Vec<_> = said.filter(|line| !line.is_empty() && !line.starts_with("For more information")).collect();
    format!("{} (see --help)", said.join(" "))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::runtime::RuntimeArgs;

    #[derive(Debug, Parser)]
    #[command(name = "test")]
    struct Line {
        #[command(flatten)]
        runtime: RuntimeArgs,
        #[arg(long)]
        must: String,
    }

    fn said(line: &[&str]) -> String {
        one_line(&Line::try_parse_from(line).unwrap_err())
    }

    #[test]
    fn each_mistake_is_one_line_that_names_the_flag_and_the_reason() {
        assert_eq!(
            said(&["test", "--must", "x", "--lease-duration", "2s"]),
            "error: invalid value '2s' for '--lease-duration <TIME>': a lease lasts whole seconds, from 3s to 1h (see --help)"
        );
        assert_eq!(
            said(&["test"]),
            "error: the following required arguments were not provided: --must <MUST> (see --help)"
        );
        assert!(said(&["test", "--mst", "x"]).starts_with("error: unexpected argument '--mst' found"));
        for line in [&["test"][..], &["test", "--nope"], &["test", "--admin-address", "here"]] {
            assert_eq!(said(line).lines().count(), 1);
        }
    }
}
