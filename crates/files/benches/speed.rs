//! How fast files are read, written and compared: `cargo bench -p faircast-files`.
fn main() {}
