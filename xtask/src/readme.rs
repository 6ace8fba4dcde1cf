//! The commands that README.md shows are run as a reader would run them.

use std::path::Path;

use crate::shell;
use crate::workspace::Crate;

/// Runs every command of README.md that begins with `faircast` or `cargo run`, but for those in
/// blocks that are marked `no-run`. Returns what was done, or `None` where there is nothing to run yet.
pub(crate) fn run(crates: &[Crate]) -> Result<Option<String>, String> {
    let Ok(readme) = std::fs::read_to_string(shell::root().join("README.md")) else {
        return Ok(None);
    };
    let commands = commands(&readme);
    let has_program =
        crates.iter().any(|found| found.programs.iter().any(|name| name == "faircast"));
    if commands.is_empty() || !has_program {
        return Ok(None);
    }
    shell::run("cargo", &["build", "--release", "--bin", "faircast"], &[])?;
    let built = crate::workspace::target_directory()?.join("release");
    let path = std::env::var("PATH").unwrap_or_default();
    let path = format!("{}:{path}", built.display());
    let count = commands.len();
    for command in commands {
        println!("$ {command}");
        // A shell reads quotes and variables as the reader's would.
        let limited = ["120", "bash", "-c", command.as_str()];
        shell::run("timeout", &limited, &[("PATH", path.as_str())])?;
    }
    Ok(Some(format!("{count} commands ran")))
}

/// The commands of the page's shell blocks, lines ending in `\` joined.
fn commands(page: &str) -> Vec<String> {
    let mut commands = Vec::new();
    let mut running = false;
    let mut begun = String::new();
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
        match line.strip_suffix('\\') {
            Some(start) => begun.push_str(start),
            None => {
                let command = format!("{}{line}", std::mem::take(&mut begun));
                let program = command.split_whitespace().next().unwrap_or_default();
                if command.starts_with("cargo run ") {
                    commands.push(command);
                } else if Path::new(program).file_name().is_some_and(|name| name == "faircast") {
                    let rest = command.trim_start_matches(program);
                    commands.push(format!("faircast{rest}"));
                }
            }
        }
    }
    commands
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_are_those_of_shell_blocks() {
        let page = "```sh\ncargo build\ncargo run -- demo\nfaircast run a.toml \\\n  --json\n```\nfaircast no\n\
            ```console\n$ target/release/faircast bench # all\n```\n```toml\nfaircast = 1\n```\n\
            ```sh no-run\nfaircast run --on lab a.toml\n```\n";
        let want = ["cargo run -- demo", "faircast run a.toml --json", "faircast bench # all"];
        assert_eq!(commands(page), want);
    }
}
