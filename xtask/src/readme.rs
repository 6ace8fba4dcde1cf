//! The commands of the first pages are run as a reader would run them.

use std::path::Path;

use crate::shell;

const PAGES: [&str; 2] = ["README.md", "docs/first-experiments.md"];

/// Runs every command of [`PAGES`] that begins with `faircast` or `cargo run`, with the program in
/// the folder `built`. Blocks marked `no-run` are left out. Returns the number of commands.
pub(crate) fn run(built: &Path) -> Result<String, String> {
    let path = std::env::var("PATH").unwrap_or_default();
    let path = format!("{}:{path}", built.display());
    let mut count = 0;
    for page in PAGES {
        let text = std::fs::read_to_string(shell::root().join(page));
        let commands = commands(&text.map_err(|error| format!("{page}: {error}"))?);
        if commands.is_empty() {
            return Err(format!("{page} shows no command to run"));
        }
        for command in &commands {
            println!("$ {command}");
            // A shell reads quotes and variables as the reader's would.
            let limited = ["120", "bash", "-c", command.as_str()];
            shell::run("timeout", &limited, &[("PATH", path.as_str())])?;
        }
        count += commands.len();
    }
    Ok(format!("{count} commands ran"))
}

fn commands(page: &str) -> Vec<String> {
    let (mut commands, mut running, mut begun) = (Vec::new(), false, String::new());
    for line in page.lines() {
        if let Some(info) = line.trim_start().strip_prefix("```") {
            let words: Vec<&str> = info.split_whitespace().collect();
            let shell = matches!(words.first(), Some(&("sh" | "bash" | "console")));
            running = !running && shell && !words.contains(&"no-run");
            continue;
        }
        if !running {
            continue;
        }
        let line = line.trim().trim_start_matches("$ ");
        if let Some(start) = line.strip_suffix('\\') {
            begun.push_str(start);
            continue;
        }
        let command = format!("{}{line}", std::mem::take(&mut begun));
        let program = command.split_whitespace().next().unwrap_or_default();
        if let Some((_, rest)) = command.split_once(CARGO_RUN) {
            commands.push(format!("faircast {rest}"));
        } else if Path::new(program).file_name().is_some_and(|name| name == "faircast") {
            commands.push(format!("faircast{}", command.trim_start_matches(program)));
        }
    }
    commands
}

const CARGO_RUN: &str = "cargo run --release -- ";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_are_those_of_shell_blocks() {
        let page = "```sh\ncargo build\ncargo run --release -- demo\nfaircast run a.toml \\\n  --json\n```\nfaircast no\n\
            ```console\n$ target/release/faircast bench # all\n```\n```toml\nfaircast = 1\n```\n\
            ```sh no-run\nfaircast run --on lab a.toml\n```\n";
        let want = ["faircast demo", "faircast run a.toml --json", "faircast bench # all"];
        assert_eq!(commands(page), want);
    }
}
