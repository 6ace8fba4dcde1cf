//! Execution of other programs.

use std::io::{BufRead, BufReader, Read, Write};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Mutex;

pub(crate) fn run(program: &str, arguments: &[&str], env: &[(&str, &str)]) -> Result<(), String> {
    run_in(root(), program, arguments, env)
}

pub(crate) fn run_in(
    folder: &Path,
    program: &str,
    arguments: &[&str],
    env: &[(&str, &str)],
) -> Result<(), String> {
    let status = command(program, arguments, env).current_dir(folder).status();
    let status = status.map_err(|error| format!("{program} cannot run: {error}"))?;
    ended(status.success(), program, arguments, &status.to_string())
}

pub(crate) fn run_and_remember(
    program: &str,
    arguments: &[&str],
    env: &[(&str, &str)],
    keep: impl Fn(&str) -> bool + Sync,
) -> (Vec<String>, Result<(), String>) {
    let kept = Mutex::new(Vec::new());
    let mut command = command(program, arguments, env);
    let mut child = match command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn() {
        Ok(child) => child,
        Err(error) => return (Vec::new(), Err(format!("{program} cannot run: {error}"))),
    };
    let (out, err) = (child.stdout.take(), child.stderr.take());
    std::thread::scope(|scope| {
        let (kept, keep) = (&kept, &keep);
        scope.spawn(move || pass_on(out, std::io::stdout(), kept, keep));
        scope.spawn(move || pass_on(err, std::io::stderr(), kept, keep));
    });
    let ended = match child.wait() {
        Ok(status) => ended(status.success(), program, arguments, &status.to_string()),
        Err(error) => Err(format!("{program} was lost: {error}")),
    };
    (kept.into_inner().unwrap_or_default(), ended)
}

pub(crate) fn output(program: &str, arguments: &[&str]) -> Result<String, String> {
    let output = command(program, arguments, &[])
        .output()
        .map_err(|error| format!("{program} cannot run: {error}"))?;
    ended(output.status.success(), program, arguments, &String::from_utf8_lossy(&output.stderr))?;
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

pub(crate) fn exists(program: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path).any(|folder| folder.join(program).is_file())
}

pub(crate) fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("xtask lies below the root")
}

fn command(program: &str, arguments: &[&str], env: &[(&str, &str)]) -> Command {
    let mut command = Command::new(program);
    command.args(arguments).envs(env.iter().copied()).current_dir(root());
    command.env("CARGO_TERM_COLOR", "never").env("CARGO_TERM_PROGRESS_WHEN", "never");
    command
}

fn ended(success: bool, program: &str, arguments: &[&str], how: &str) -> Result<(), String> {
    match success {
        true => Ok(()),
        false => Err(format!("{program} {}: {}", arguments.join(" "), how.trim())),
    }
}

fn pass_on(
    from: Option<impl Read>,
    mut to: impl Write,
    kept: &Mutex<Vec<String>>,
    keep: &(impl Fn(&str) -> bool + Sync),
) {
    let Some(from) = from else { return };
    let mut reader = BufReader::new(from);
    let mut line = Vec::new();
    while reader.read_until(b'\n', &mut line).is_ok_and(|count| count > 0) {
        // A closed pipe on our side must not stop the program.
        let _ = to.write_all(&line).and_then(|()| to.flush());
        let text = String::from_utf8_lossy(&line);
        if keep(text.trim_end())
            && let Ok(mut kept) = kept.lock()
        {
            kept.push(text.trim_end().to_string());
        }
        line.clear();
    }
}
