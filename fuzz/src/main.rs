//! All fuzz targets in one program: `faircast-fuzz TARGET`, which `cargo xtask fuzz` builds and
//! runs under AFL++. The tests of each crate contain its targets and replay their corpus.

#[path = "../../crates/sim/tests/fuzz/background.rs"]
mod background;
#[path = "../../crates/proto/tests/fuzz/credits.rs"]
mod credits;
#[path = "../../crates/proto/tests/fuzz/element.rs"]
mod element;
#[path = "../../crates/proto/tests/fuzz/endpoints.rs"]
mod endpoints;
#[path = "../../crates/proto/tests/fuzz/ends.rs"]
mod ends;
#[path = "../../crates/files/tests/fuzz/manifest.rs"]
mod manifest;
#[path = "../../crates/proto/tests/fuzz/packet.rs"]
mod packet;
#[cfg(feature = "programs")]
#[path = "../../crates/programs/tests/fuzz/programs.rs"]
mod programs;
#[path = "../../crates/hop/tests/fuzz/relay_node.rs"]
mod relay_node;
#[path = "../../crates/seal/tests/fuzz/sealed.rs"]
mod sealed;
#[path = "../../crates/sim/tests/fuzz/texts.rs"]
mod texts;

/// Fuzz targets by name.
const TARGETS: &[(&str, fn(&[u8]))] = &[
    ("pgm_packet", |data| {
        let _ = packet::packet(data);
    }),
    ("tram_packet", |data| {
        let _ = packet::tram_packet(data);
    }),
    ("credits", credits::credits),
    #[cfg(feature = "programs")]
    ("programs", |data| {
        let _ = programs::program(data);
    }),
    ("streams", endpoints::streams),
    ("objects", endpoints::objects),
    ("tree", endpoints::tree),
    ("element", element::element),
    ("manifest", |data| {
        let _ = manifest::manifest(data);
    }),
    ("sealed", sealed::sealed),
    ("key_file", |data| {
        let _ = sealed::key_file(data);
    }),
    ("relay_node", |data| {
        let _ = relay_node::relay_node(data);
    }),
    ("background", background::run),
    ("scenario", |data| {
        let _ = texts::scenario(data);
    }),
    ("trace_file", |data| {
        let _ = texts::trace_file(data);
    }),
];

fn main() {
    let name = std::env::args().nth(1);
    let target = TARGETS.iter().find(|(target, _)| Some(*target) == name.as_deref());
    let Some((_, run)) = target else {
        TARGETS.iter().for_each(|(target, _)| println!("{target}"));
        std::process::exit(2);
    };
    afl::fuzz!(|data: &[u8]| run(data));
}
