//! Static trees of repair heads: a file, the same at all receivers, with the head of each receiver.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use faircast_base::{NodeId, TREE_LEVELS_MAX, TreeFault, check_heads};
use faircast_proto::options::OptionValue;
use faircast_proto::tram::{GivenHead, name_number};

use crate::{Error, Result};

/// Static tree of repair heads for TRAM ([`ReceiverBuilder::tree`](crate::ReceiverBuilder::tree)).
/// Each line has a receiver, a space, and its head or `sender`. A `#` begins a comment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RepairTree {
    heads: Arc<BTreeMap<String, String>>,
}

impl RepairTree {
    /// Reads a tree from a file.
    ///
    /// # Errors
    /// The file cannot be read, or is not a tree.
    pub fn read(path: impl AsRef<Path>) -> Result<Self, Error> {
        let path = path.as_ref();
        let wrong = |text: String| Error::Setting(format!("{}{text}", path.display()));
        let text = std::fs::read_to_string(path)
            .map_err(|error| wrong(format!(": cannot be read: {error}")))?;
        Self::parse(&text).map_err(|(line, fault)| wrong(format!(":{line}: {fault}")))
    }

    fn parse(text: &str) -> Result<Self, (usize, String)> {
        let (mut heads, mut lines) = (BTreeMap::new(), BTreeMap::new());
        for (line, text) in (1..).zip(text.lines()) {
            let text = text.split('#').next().unwrap_or_default().trim();
            if !text.is_empty() {
                let name = Self::take(&mut heads, &lines, text).map_err(|fault| (line, fault))?;
                lines.insert(name, line);
            }
        }
        Ok(Self { heads: Arc::new(heads) })
    }

    fn take(
        heads: &mut BTreeMap<String, String>,
        lines: &BTreeMap<String, usize>,
        text: &str,
    ) -> Result<String, String> {
        let mut words = text.split_whitespace().map(str::to_string);
        let (Some(name), Some(head), None) = (words.next(), words.next(), words.next()) else {
            let expected = "expected a receiver and its head, such as `r7 r2` or `r2 sender`";
            return Err(format!("{expected}, instead of `{text}`"));
        };
        if let Some(long) = [&name, &head].into_iter().find(|it| it.len() > NAME_BYTES_MAX) {
            let len = long.len();
            return Err(format!("`{long}` has {len} bytes; names have at most {NAME_BYTES_MAX}"));
        }
        if name == SENDER_WORD {
            let text =
                "the sender has no head; expected a receiver and its head, such as `r2 sender`";
            return Err(text.to_string());
        }
        if let Some(line) = lines.get(&name) {
            return Err(format!("`{name}` has a head already, on line {line}"));
        }
        heads.insert(name.clone(), head);
        check_heads(heads, &name).map_err(|fault| match fault {
            TreeFault::Cycle(round) => {
                let others = match round.len() > 2 {
                    true => format!(", through others: {}", round.join(" -> ")),
                    false => String::new(),
                };
                let at = &round[0];
                format!(
                    "`{at}` is its own head{others}; expected a tree with the sender at its top"
                )
            }
            TreeFault::Deep => {
                format!("`{name}` has {TREE_LEVELS_MAX} heads above it; allowed: fewer")
            }
        })?;
        Ok(name)
    }

    pub(crate) fn head(&self, name: &str, source: NodeId) -> Option<GivenHead> {
        Some(match self.heads.get(name)?.as_str() {
            SENDER_WORD => GivenHead::Node(source),
            head => GivenHead::Named(name_number(head)),
        })
    }

    pub(crate) fn set_role(&self, name: &str, options: &mut Vec<(String, OptionValue)>) -> Result {
        let Some((below, _)) = self.heads.iter().find(|(_, head)| *head == name) else {
            return Ok(());
        };
        match options.iter().rev().find(|(key, _)| key == HEAD) {
            Some((_, OptionValue::Text(role))) if role == "never" => Err(Error::Setting(format!(
                "the tree has `{name}` for the head of `{below}`, but its setting is never to repair for others \
                     (head = \"never\"); allowed: \"eager\", \"reluctant\""
            ))),
            Some(_) => Ok(()),
            None => {
                options.push((HEAD.to_string(), OptionValue::Text("eager".to_string())));
                Ok(())
            }
        }
    }
}

const SENDER_WORD: &str = "sender";
const HEAD: &str = "head";
const NAME_BYTES_MAX: usize = 64;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_pairs_of_names() {
        let text = "# who repairs for whom\n\n a  sender\nb a# near it\n\tc\tb \nd elsewhere\n";
        let tree = RepairTree::parse(text).unwrap();
        let source = NodeId(7);
        let named = |name| Some(GivenHead::Named(name_number(name)));
        for (name, want) in [
            ("a", Some(GivenHead::Node(source))),
            ("b", named("a")),
            ("c", named("b")),
            ("d", named("elsewhere")),
            ("elsewhere", None),
            ("", None),
        ] {
            assert_eq!(tree.head(name, source), want, "{name}");
        }
        assert_eq!(RepairTree::parse("").unwrap().head("a", source), None);
    }

    #[test]
    fn what_is_no_tree_is_refused_with_its_line() {
        let long = "x".repeat(65);
        let chain: String = (0..=TREE_LEVELS_MAX).map(|it| format!("{} {it}\n", it + 1)).collect();
        for (text, line, want) in [
            ("a sender\nb\n", 2, "such as `r7 r2` or `r2 sender`, instead of `b`"),
            ("a sender b", 1, "instead of `a sender b`"),
            ("a sender\n\nsender a", 3, "the sender has no head"),
            ("a sender\nb a\na b\n", 3, "`a` has a head already, on line 1"),
            ("a sender\na sender\n", 2, "`a` has a head already, on line 1"),
            ("a a", 1, "`a` is its own head; expected a tree"),
            (
                "a b\n# and so on\nb c\nc a",
                4,
                "`c` is its own head, through others: c -> a -> b -> c",
            ),
            ("b a\na b", 2, "a -> b -> a"),
            (&format!("a {long}"), 1, "has 65 bytes; names have at most 64"),
            (&chain, TREE_LEVELS_MAX, "has 64 heads above it"),
        ] {
            let (at, fault) = RepairTree::parse(text).unwrap_err();
            assert!(at == line && fault.contains(want), "{text:?}: {at}: {fault}");
        }
    }

    #[test]
    fn errors_name_the_file_and_the_line() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("tree.txt");
        let error = |text: Option<&str>| {
            text.iter().for_each(|text| std::fs::write(&path, text).unwrap());
            RepairTree::read(&path).unwrap_err().to_string()
        };
        let shown = path.display();
        assert!(error(None).starts_with(&format!("{shown}: cannot be read: ")));
        assert!(error(Some("a sender\nb b\n")).starts_with(&format!("{shown}:2: `b` is its own")));
    }

    #[test]
    fn who_has_members_in_the_file_repairs_for_them() {
        let tree = RepairTree::parse("a sender\nb a").unwrap();
        let role = |name, own: &[&str]| {
            let own = own.iter().map(|it| (HEAD.to_string(), OptionValue::Text(it.to_string())));
            let mut options: Vec<_> = own.collect();
            tree.set_role(name, &mut options).map(|()| options.last().map(|it| it.1.clone()))
        };
        let text = |text: &str| Some(OptionValue::Text(text.to_string()));
        assert_eq!(role("a", &[]).unwrap(), text("eager"));
        assert_eq!(role("a", &["never", "reluctant"]).unwrap(), text("reluctant"));
        assert_eq!(
            (role("b", &[]).unwrap(), role("b", &["never"]).unwrap()),
            (None, text("never"))
        );
        let error = role("a", &["never"]).unwrap_err().to_string();
        assert!(error.contains("`a`") && error.contains("`b`"), "{error}");
    }
}
