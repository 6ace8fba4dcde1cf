//! Scenarios of the cases, made from texts by replacement.

/// Returns `text` with `to` in place of each `from`.
///
/// # Panics
/// The text has no `from`: a change of the text would silently change the case.
fn replaced(text: &str, from: &str, to: &str) -> String {
    assert!(text.contains(from), "no \"{from}\" in a scenario of speed");
    text.replace(from, to)
}

fn split_before<'a>(text: &'a str, block: &str) -> (&'a str, &'a str) {
    text.split_at(text.find(block).expect("the text has such a block"))
}

pub(super) fn heavy_tcp() -> String {
    let (network, flow) = split_before(include_str!("heavy_tcp.toml"), "[[flow]]");
    let flows = (1..=100).map(|number| replaced(flow, "FLOW", &number.to_string()));
    network.to_string() + &flows.collect::<String>()
}

/// Returns the scenario of 1000 receivers behind three levels of ten links each, the last lossy.
pub(super) fn tree(protocol: &str, loss: &str, duration_s: u32) -> String {
    let (session, link) = split_before(include_str!("tree.toml"), "[[link]]");
    let session = replaced(session, "PROTOCOL", protocol);
    let session = replaced(&session, "DURATION", &duration_s.to_string());
    let options = if protocol == "cbr" { "options = { rate = \"10 Mbit/s\" }\n" } else { "" };
    let star = |center: &str, leaves: &str, loss: &str| {
        let link = replaced(link, "CENTER", center);
        replaced(&replaced(&link, "LEAVES", leaves), "LOSS", loss)
    };
    let ten = |parent: u32| format!("{{{}..{}}}", 10 * parent + 1, 10 * parent + 10);
    let second = (0..10).map(|a| star(&format!("a{}", a + 1), &format!("b{}", ten(a)), "0.0"));
    let third = (0..100).map(|b| star(&format!("b{}", b + 1), &format!("m{}", ten(b)), loss));
    let first = [session, options.to_string(), star("s", "a{1..10}", "0.0")];
    first.into_iter().chain(second).chain(third).collect()
}

pub(super) fn crowd(protocol: &str) -> String {
    replaced(include_str!("crowd.toml"), "PROTOCOL", protocol)
}

pub(super) fn relayed_crowd() -> String {
    let text = replaced(&crowd("credit-pgmcc"), "[10, 10, 100]", "[10, 10, 10, 10]");
    let text = replaced(&text, "m3-{1..10000}", "m4-{1..10000}");
    let relays = "[\"r\", \"m1-{1..10}\", \"m2-{1..100}\", \"m3-{1..1000}\"]";
    text + &format!(
        "options = {{ credit_buffer = 20, credit_unit = 5 }}\n\
         [[node]]\nname = {relays}\nprogram = \"credit\"\n"
    )
}

pub(super) fn hundred_thousand() -> String {
    let text = include_str!("../../../../scenarios/tram-scale/crowd.toml");
    let text = replaced(text, "[10, 10, 10]", "[10, 10, 10, 100]");
    let text = replaced(&text, "m3-{1..1000}", "m4-{1..100000}");
    replaced(&text, "wait_for = 1000", "wait_for = 100000")
}

pub(super) fn two_flows() -> String {
    replaced(include_str!("../../../../scenarios/tcp/two-flows.toml"), "tcp-reno", "tcp-sack")
}

pub(super) const FAIRNESS: &str =
    include_str!("../../../../scenarios/fairness/set1-one-bottleneck.toml");
