//! Names and paths inside an object: which are allowed, and their order.

use std::cmp::Ordering;

/// Name of the folder in which a receiver keeps what is not complete.
pub const STATE_FOLDER: &str = ".faircast";
/// Bytes of one component, as in every file system of today.
pub const COMPONENT_BYTES_MAX: usize = 255;
/// Bytes of a whole path.
pub const PATH_BYTES_MAX: usize = 4095;
/// Components of a path.
pub const DEPTH_MAX: usize = 128;

/// What is wrong with a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum NameError {
    /// It is empty, begins or ends with `/`, or has two of them in a row.
    #[error("it has an empty part")]
    Empty,
    /// A component is `.` or `..`.
    #[error("it has a part `.` or `..`")]
    Dots,
    /// It has a control character, NUL included.
    #[error("it has a control character")]
    Control,
    /// It has a backslash, which separates names on other systems.
    #[error("it has a backslash")]
    Backslash,
    /// A component begins with a letter and a colon, which is a drive on other systems.
    #[error("a part of it begins like the name of a drive")]
    Drive,
    /// A component is the name of a device on other systems.
    #[error("a part of it is the name of a device on Windows")]
    Device,
    /// A component is the folder in which receivers keep what is not complete.
    #[error("a part of it is `.faircast`, which receivers use themselves")]
    State,
    /// A component has more than [`COMPONENT_BYTES_MAX`] bytes, or all have more than
    /// [`PATH_BYTES_MAX`].
    #[error("it is too long")]
    Long,
    /// It has more than [`DEPTH_MAX`] components.
    #[error("it is too deep")]
    Deep,
}

/// Checks one component.
///
/// # Errors
/// It could mean something else than a name in its directory, here or on another system.
pub fn check_component(name: &str) -> Result<(), NameError> {
    match name {
        "" => return Err(NameError::Empty),
        "." | ".." => return Err(NameError::Dots),
        _ => {}
    }
    if name.len() > COMPONENT_BYTES_MAX {
        return Err(NameError::Long);
    }
    if name.chars().any(char::is_control) {
        return Err(NameError::Control);
    }
    if name.contains('/') {
        return Err(NameError::Empty);
    }
    if name.contains('\\') {
        return Err(NameError::Backslash);
    }
    if let [letter, b':', ..] = name.as_bytes()
        && letter.is_ascii_alphabetic()
    {
        return Err(NameError::Drive);
    }
    if is_device(name) {
        return Err(NameError::Device);
    }
    if name.eq_ignore_ascii_case(STATE_FOLDER) {
        return Err(NameError::State);
    }
    Ok(())
}

/// Checks a whole path, components separated by `/`.
///
/// # Errors
/// It could lead out of the directory that it is relative to, or means something else on another
/// system.
pub fn check_path(path: &str) -> Result<(), NameError> {
    if path.len() > PATH_BYTES_MAX {
        return Err(NameError::Long);
    }
    for (depth, name) in path.split('/').enumerate() {
        if depth == DEPTH_MAX {
            return Err(NameError::Deep);
        }
        check_component(name)?;
    }
    Ok(())
}

/// The order of a manifest: component by component, so that a directory comes directly before
/// what is in it.
pub(crate) fn compare(a: &str, b: &str) -> Ordering {
    a.split('/').cmp(b.split('/'))
}

/// The directory of a path; `None` at the top.
pub(crate) fn parent(path: &str) -> Option<&str> {
    path.rsplit_once('/').map(|(parent, _)| parent)
}

/// Bare names alone: `aux.c` is common, and since Windows 11 a file there too.
fn is_device(name: &str) -> bool {
    const DEVICES: [&str; 6] = ["CON", "PRN", "AUX", "NUL", "CONIN$", "CONOUT$"];
    if DEVICES.iter().any(|device| name.eq_ignore_ascii_case(device)) {
        return true;
    }
    match name.as_bytes() {
        [kind @ .., b'0'..=b'9'] => {
            kind.eq_ignore_ascii_case(b"COM") || kind.eq_ignore_ascii_case(b"LPT")
        }
        _ => false,
    }
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
            ("a\0b", NameError::Control),
            ("a\nb", NameError::Control),
            ("a\x1b[2Jb", NameError::Control),
            ("a\u{85}b", NameError::Control),
            ("a\\..\\b", NameError::Backslash),
            ("C:", NameError::Drive),
            ("c:/windows", NameError::Drive),
            ("x/nul", NameError::Device),
            ("Com1", NameError::Device),
            (".faircast", NameError::State),
            ("a/.FAIRCAST/0.part", NameError::State),
            (wide.as_str(), NameError::Long),
            (long.as_str(), NameError::Long),
            (deep.as_str(), NameError::Deep),
        ];
        for (path, want) in table {
            assert_eq!(check_path(path), Err(want), "{path:?}");
        }
    }

    #[test]
    fn ordinary_names_are_taken() {
        for path in [
            "a",
            "a b/ü/日本.txt",
            "12:30.log",
            "...",
            "..a",
            "aux.c",
            "console",
            "com",
            "com12",
            ".faircast2",
            "-rf",
            "a/.git/x",
        ] {
            assert_eq!(check_path(path), Ok(()), "{path}");
        }
    }

    #[test]
    fn a_directory_comes_directly_before_what_is_in_it() {
        let mut paths = vec!["a-b", "a/z", "a", "a/b/c", "a/b", "b", "a/b-c"];
        paths.sort_by(|a, b| compare(a, b));
        assert_eq!(paths, ["a", "a/b", "a/b/c", "a/b-c", "a/z", "a-b", "b"]);
    }
}
