//! Names and paths inside an object: validity and order.

use std::cmp::Ordering;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

use bstr::{BStr, ByteSlice as _};
use faircast_base::{escaped, is_format};

pub(crate) const STATE_FOLDER: &str = ".faircast";
/// Most bytes of a component, as in all common file systems.
pub(crate) const COMPONENT_BYTES_MAX: usize = 255;
pub(crate) const PATH_BYTES_MAX: usize = 4095;
pub(crate) const DEPTH_MAX: usize = 128;

/// Fault of a path, of a component, or of the target of a link.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum NameError {
    /// A component is empty: the path is empty, has `//`, or begins or ends with `/`.
    #[error("it has an empty part")]
    Empty,
    #[error("it has a part `.` or `..`")]
    Dots,
    #[error("it has a NUL byte")]
    Nul,
    /// A title has a [character of format](is_format).
    #[error("it has a character that is not printed or that changes the text around it")]
    Format,
    #[error("a part of it is `.faircast`, which receivers use themselves")]
    State,
    /// A component is longer than [`COMPONENT_BYTES_MAX`], or the path than [`PATH_BYTES_MAX`].
    #[error("it is too long")]
    Long,
    #[error("it is too deep")]
    Deep,
    /// The target is empty or longer than 4095 bytes.
    #[error("it is empty or too long")]
    TargetLength,
    #[error("it is absolute")]
    Absolute,
    #[error("it leads out of what is sent")]
    Outside,
    /// The target has `..` after something other than a directory of the object.
    #[error("it goes back from something that is no directory here")]
    Back,
}

/// Checks a component of a path: any bytes that Linux allows as a name.
pub(crate) fn check_component(name: &[u8]) -> Result<(), NameError> {
    match name {
        b"" => Err(NameError::Empty),
        b"." | b".." => Err(NameError::Dots),
        _ if name.len() > COMPONENT_BYTES_MAX => Err(NameError::Long),
        _ if name.contains(&0) => Err(NameError::Nul),
        _ if name.contains(&b'/') => Err(NameError::Empty),
        _ if name.eq_ignore_ascii_case(STATE_FOLDER.as_bytes()) => Err(NameError::State),
        _ => Ok(()),
    }
}

/// Checks the title of an object: a text component without [characters of format](is_format).
pub(crate) fn check_title(title: &str) -> Result<(), NameError> {
    check_component(title.as_bytes())?;
    if title.contains(is_format) {
        return Err(NameError::Format);
    }
    Ok(())
}

pub(crate) fn title(name: &[u8]) -> String {
    String::from_utf8_lossy(name).replace(is_format, "\u{fffd}")
}

pub(crate) fn check_path(path: &[u8]) -> Result<(), NameError> {
    if path.len() > PATH_BYTES_MAX {
        return Err(NameError::Long);
    }
    for (depth, name) in components(path).enumerate() {
        if depth == DEPTH_MAX {
            return Err(NameError::Deep);
        }
        check_component(name)?;
    }
    Ok(())
}

pub(crate) fn components(path: &[u8]) -> impl Iterator<Item = &[u8]> {
    path.split(|byte| *byte == b'/')
}

pub(crate) fn compare(a: &[u8], b: &[u8]) -> Ordering {
    components(a).cmp(components(b))
}

pub(crate) fn local_path(path: &BStr) -> PathBuf {
    PathBuf::from(OsStr::from_bytes(path))
}

pub(crate) fn parent(path: &[u8]) -> Option<&BStr> {
    split(path).0
}

pub(crate) fn split(path: &[u8]) -> (Option<&BStr>, &BStr) {
    match path.rfind_byte(b'/') {
        Some(at) => (Some(path[..at].as_bstr()), path[at + 1..].as_bstr()),
        None => (None, path.as_bstr()),
    }
}

pub(crate) fn is_within(directory: &[u8], path: &[u8]) -> bool {
    path.strip_prefix(directory).is_some_and(|rest| rest.is_empty() || rest.starts_with(b"/"))
}

pub(crate) fn without_case(path: &[u8]) -> Vec<u8> {
    match std::str::from_utf8(path) {
        Ok(text) => text.to_lowercase().into_bytes(),
        Err(_) => path.to_ascii_lowercase(),
    }
}

/// Returns the printed form of a name: [`escaped`], with `\xff` for an invalid byte.
pub fn shown(name: &[u8]) -> String {
    let mut text = String::new();
    for chunk in name.utf8_chunks() {
        text.push_str(&escaped(chunk.valid()));
        chunk.invalid().iter().for_each(|byte| text.push_str(&format!("\\x{byte:02x}")));
    }
    text
}

/// Returns the printed form of a path of this system, as [`shown`].
pub fn shown_path(path: impl AsRef<Path>) -> String {
    shown(path.as_ref().as_os_str().as_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_that_could_lead_elsewhere_are_refused() {
        let deep = vec!["a"; DEPTH_MAX + 1].join("/");
        let long = vec!["a".repeat(200); 21].join("/");
        let wide = "a".repeat(COMPONENT_BYTES_MAX + 1);
        let table = [
            ("", NameError::Empty),
            ("/etc/passwd", NameError::Empty),
            ("a//b", NameError::Empty),
            ("a/", NameError::Empty),
            ("..", NameError::Dots),
            ("a/../../b", NameError::Dots),
            ("./a", NameError::Dots),
            ("a\0b", NameError::Nul),
            (".faircast", NameError::State),
            ("a/.FAIRCAST/0.part", NameError::State),
            (wide.as_str(), NameError::Long),
            (long.as_str(), NameError::Long),
            (deep.as_str(), NameError::Deep),
        ];
        for (path, want) in table {
            assert_eq!(check_path(path.as_bytes()), Err(want), "{path:?}");
        }
        for title in [
            "a\nb",
            "a\x7fb",
            "a\u{85}b",
            "a\u{202e}b",
            "a\u{2028}b",
            "a\u{2066}b",
            "a\u{600}b",
            "..",
            "a/b",
            "",
        ] {
            assert!(check_title(title).is_err(), "{title:?}");
        }
    }

    #[test]
    fn names_that_linux_can_hold_are_taken() {
        let names: [&[u8]; 17] = [
            b"a",
            "a b/\u{fc}/\u{65e5}\u{672c}.txt".as_bytes(),
            b"12:30.log",
            b"...",
            b"..a",
            b"dev-disk-by\\x2did.swap",
            b"a\\..\\b",
            b"c:/windows",
            b"x/nul",
            b"aux.c",
            b"a\nb",
            b"a\x1b[2Jb",
            b"\xff\xfe",
            "a\u{202e}b".as_bytes(),
            b".faircast2",
            b"-rf",
            b"a/.git/x",
        ];
        for path in names {
            assert_eq!(check_path(path), Ok(()), "{path:?}");
        }
    }

    #[test]
    fn printed_names_leave_the_terminal_alone() {
        for (name, want) in [
            (&b"plain name.txt"[..], "plain name.txt"),
            ("\u{e4}\u{65e5}".as_bytes(), "\u{e4}\u{65e5}"),
            (b"by\\x2did", "by\\x2did"),
            (b"a\nb\x1b[2J", "a\\nb\\u001b[2J"),
            ("a\u{202e}b\u{2028}\u{2066}\u{9b}".as_bytes(), "a\\u202eb\\u2028\\u2066\\u009b"),
            ("\u{600}\u{e0041}".as_bytes(), "\\u0600\\udb40\\udc41"),
            (b"a\xffb", "a\\xffb"),
        ] {
            assert_eq!(shown(name), want);
            let title = title(name);
            assert_eq!(check_title(&title), Ok(()), "{title:?}");
        }
        assert_eq!(title("a\u{202e}b\n".as_bytes()), "a\u{fffd}b\u{fffd}");
        assert_eq!(title(b"a\xff"), "a\u{fffd}");
    }

    #[test]
    fn a_directory_comes_directly_before_what_is_in_it() {
        let mut paths = vec!["a-b", "a/z", "a", "a/b/c", "a/b", "b", "a/b-c"];
        paths.sort_by(|a, b| compare(a.as_bytes(), b.as_bytes()));
        assert_eq!(paths, ["a", "a/b", "a/b/c", "a/b-c", "a/z", "a-b", "b"]);
    }
}
