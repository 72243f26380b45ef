//! Logs: JSON in a pod, readable on a terminal.

use std::io::IsTerminal;

use clap::ValueEnum;
use tracing_subscriber::EnvFilter;

/// How log lines look.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum LogFormat {
    /// `text` on a terminal, `json` otherwise.
    Auto,
    /// One JSON object a line.
    Json,
    /// For people.
    Text,
}

/// Sets up logging for the process. A second call changes nothing.
pub(super) fn init(format: LogFormat, filter: EnvFilter) {
    let terminal = std::io::stderr().is_terminal();
    let json = match format {
        LogFormat::Auto => !terminal,
        LogFormat::Json => true,
        LogFormat::Text => false,
    };
    let builder = tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr);
    // An error means that a subscriber is there already, as in a test that runs several controllers.
    let _ = if json {
        builder.json().flatten_event(true).with_current_span(true).with_span_list(false).try_init()
    } else {
        builder.with_ansi(terminal).with_target(false).try_init()
    };
}
