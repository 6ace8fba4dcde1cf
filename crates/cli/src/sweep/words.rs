//! Command lines of a sweep's runs, for shells and `xargs`.
//!
//! Arguments are escaped, because shells and `xargs` have different rules for quotes; `faircast
//! sweep` reads them back. The name of the program is quoted for a shell, which must find it.

use std::ffi::OsString;
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::path::{Path, PathBuf};

use faircast_study::Sweep;
use faircast_study::sweep::Job;

/// Returns the arguments that run `job` and store it in `out`, plain for shells and `xargs`.
pub(super) fn command(sweep: &Sweep<'_>, job: &Job, out: &Path, traces: bool) -> String {
    let mut words = vec![escape(b"sweep"), escape_path(sweep.draft.file())];
    for set in sweep.set(&job.choice) {
        words.extend(["--set".to_string(), escape(set.as_bytes())]);
    }
    if sweep.study.is_real_time() {
        words.extend(["--on".to_string(), "lab".to_string()]);
    }
    let (seed, out) = (job.seed.to_string(), escape_path(out));
    words.extend(["--seed".to_string(), seed, "--out".to_string(), out]);
    if traces {
        words.push("--traces".to_string());
    }
    words.push("--part".to_string());
    words.join(" ")
}

fn is_plain(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"-_./=:,+@%".contains(&byte)
}

const PREFIX: &str = "url:";

/// Returns a word in plain characters: unchanged, or after `url:` with percent escapes.
fn escape(word: &[u8]) -> String {
    if let Ok(text) = std::str::from_utf8(word)
        && !text.is_empty()
        && text.bytes().all(is_plain)
        && !text.starts_with(PREFIX)
    {
        return text.to_string();
    }
    // Unescaping reads % only after the prefix, so it may stand in plain words alone.
    let escaped = word.iter().map(|&byte| match is_plain(byte) && byte != b'%' {
        true => char::from(byte).to_string(),
        false => format!("%{byte:02X}"),
    });
    PREFIX.to_string() + &escaped.collect::<String>()
}

fn escape_path(path: &Path) -> String {
    escape(path.as_os_str().as_bytes())
}

/// Returns the word that [`escape`] wrote, or the word itself if it does not begin with `url:`.
pub(super) fn unescape(word: &str) -> Result<String, String> {
    String::from_utf8(unescaped(word)?).map_err(|_| format!("{word}: the escapes are not UTF-8"))
}

pub(super) fn unescape_path(path: &Path) -> Result<PathBuf, String> {
    match path.to_str() {
        Some(word) => Ok(OsString::from_vec(unescaped(word)?).into()),
        None => Ok(path.to_owned()),
    }
}

fn unescaped(word: &str) -> Result<Vec<u8>, String> {
    let Some(escaped) = word.strip_prefix(PREFIX) else { return Ok(word.into()) };
    let mut parts = escaped.split('%');
    let mut bytes = parts.next().unwrap_or_default().as_bytes().to_vec();
    for part in parts {
        let (digits, rest) = part.split_at_checked(2).unwrap_or_default();
        let digits =
            Some(digits).filter(|digits| digits.bytes().all(|byte| byte.is_ascii_hexdigit()));
        let byte =
            digits.and_then(|digits| u8::from_str_radix(digits, 16).ok()).ok_or_else(|| {
                format!(
                    "{word}: %{part}: expected two hexadecimal digits after each %, such as %20"
                )
            })?;
        bytes.push(byte);
        bytes.extend_from_slice(rest.as_bytes());
    }
    Ok(bytes)
}

pub(super) fn for_shell(word: &str) -> String {
    match !word.is_empty() && word.bytes().all(is_plain) {
        true => word.to_string(),
        false => format!("'{}'", word.replace('\'', "'\\''")),
    }
}

#[cfg(test)]
mod tests {
    use faircast_study::sweep::Axis;
    use faircast_study::{Draft, Study};

    use super::*;

    #[test]
    fn a_command_names_the_values_of_its_run() {
        let study = Study::default();
        let text = "duration = \"2 s\"\n[[link]]\nbetween = [\"a\", \"b\"]\nrate = \"1 Mbit/s\"\n\
            delay = \"10 ms\"\n[[flow]]\nname = \"tcp\"\nprotocol = \"tcp-reno\"\nfrom = \"a\"\n\
            to = [\"b\"]\n";
        let draft = Draft::read(Path::new("F"), text).unwrap();
        let axes = ["link.0.rate=1 Mbit/s,2 Mbit/s", "flow.0.protocol=tcp-reno,tcp-sack"];
        let axes = axes.map(|set| Axis::parse(set).unwrap());
        let sweep = Sweep::new(&study, draft, axes.into(), [1]).unwrap();
        let jobs = sweep.jobs().unwrap();
        assert_eq!(
            command(&sweep, &jobs[0], Path::new("my out"), true),
            "sweep F --set url:link.0.rate=1%20Mbit/s --set flow.0.protocol=tcp-reno --seed 1 --out \
             url:my%20out --traces --part"
        );
    }

    #[test]
    fn words_are_read_back_by_a_shell_as_they_were() {
        for word in ["plain", "a b", "it's", "$HOME", "", "a=[\"x\",\"y\"]", "é"] {
            let line = format!("printf %s {}", for_shell(word));
            let out = std::process::Command::new("sh").args(["-c", &line]).output().unwrap();
            assert_eq!(String::from_utf8(out.stdout).unwrap(), word);
        }
    }

    #[test]
    fn plain_words_are_read_back_and_have_nothing_that_a_shell_or_xargs_reads() {
        for word in [
            "",
            "a b",
            "link.0.rate=\"1 Mbit/s\"",
            "it's {}[]*~$`\\|;&<>!?#()",
            "%",
            "url:x",
            "grüße\n",
            "a=b,c",
        ] {
            let plain = escape(word.as_bytes());
            assert!(plain.bytes().all(is_plain), "{plain}");
            assert_eq!(unescape(&plain).as_deref(), Ok(word), "{plain}");
        }
        assert_eq!(escape(b"duration=100 s"), "url:duration=100%20s");
        for wrong in ["url:%", "url:%2", "url:%zz", "url:%ff", "url:%+1"] {
            assert!(unescape(wrong).is_err(), "{wrong}");
        }
        let path = PathBuf::from(OsString::from_vec(b"a\xff b".to_vec()));
        let escaped = escape_path(&path);
        assert_eq!(escaped, "url:a%FF%20b");
        assert_eq!(unescape_path(Path::new(&escaped)), Ok(path));
    }
}
