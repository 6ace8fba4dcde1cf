//! Tests of misbehaving programs: each harms its own session only, then forwarded without credits.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use faircast_base::{BadInput, Event};
use faircast_programs::{Limits, ProgramError, Signers, WasmHost};
use faircast_proto::credit::{PendingLoad, ProgramHost};
use faircast_trace::{Record, Sink};

use crate::built::program;
use crate::text::with;
use crate::world::{BESIDE, World};

pub(crate) fn host() -> Arc<WasmHost> {
    Arc::new(WasmHost::new(Limits::default(), Signers::Any).unwrap())
}

#[derive(Default)]
struct Failures(usize);

impl Sink for Failures {
    fn record(&mut self, record: &Record) {
        self.0 +=
            usize::from(matches!(record.event, Event::BadInput { reason: BadInput::Program }));
    }
}

/// Results of two flows: one with a program, and one without.
struct Beside {
    /// True for each session that delivered everything.
    whole: [bool; 2],
    /// Time at which the other session had delivered everything.
    other_s: f64,
    /// Number of relays with failures.
    failures: usize,
}

fn beside(code: &[u8], host: Option<Arc<dyn ProgramHost>>) -> Beside {
    let mut failures = Failures::default();
    let outcome = World { more: BESIDE, ..World::with(code) }.run(host, &mut failures);
    let whole = [0, 1].map(|flow: usize| {
        outcome.deliveries[flow].iter().all(|(it, intact)| *intact && it.completed.is_some())
    });
    let ends = outcome.deliveries[1].iter().filter_map(|(it, _)| it.completed);
    Beside { whole, other_s: ends.max().unwrap().as_secs_f64(), failures: failures.0 }
}

/// Returns when the other session delivered everything, in seconds, and the relays with failures.
pub(crate) fn delivered(
    case: &str,
    code: &[u8],
    host: Option<Arc<dyn ProgramHost>>,
) -> (f64, usize) {
    let Beside { whole, other_s, failures } = beside(code, host);
    assert_eq!(whole, [true, true], "{case}");
    (other_s, failures)
}

#[test]
fn a_program_that_fails_costs_its_own_session_alone() {
    let (usual, failures) = delivered("a sound one", &program("worst_path"), Some(host()));
    assert_eq!(failures, 0);
    let endless = "(loop $again br $again)";
    let cases: &[(&str, Vec<u8>, bool)] = &[
        ("loops", with(&[("credit", &format!("(result i32) {endless} i32.const 0"))]), true),
        (
            "loops when it is started",
            with(&[("faircast_policy_1", &format!("(param i32) {endless}"))]),
            true,
        ),
        ("traps", with(&[("accepts", "(param i32 i32) (result i32) unreachable")]), true),
        (
            "traps after a while",
            with(&[(
                "credit",
                "(result i32) (i32.store (i32.const 0) (i32.add (i32.load (i32.const 0)) (i32.const 1))) \
             (if (i32.gt_u (i32.load (i32.const 0)) (i32.const 300)) (then unreachable)) i32.const 0",
            )]),
            true,
        ),
        (
            "takes memory",
            with(&[(
                "credit",
                "(result i32) (loop $again (br_if $again (i32.ne (memory.grow (i32.const 1)) (i32.const -1)))) i32.const 0",
            )]),
            true,
        ),
        ("recurses", with(&[("credit", "(result i32) call 2")]), true),
        (
            "asks for a branch that is not there",
            with(&[("credit", "(result i32) (drop (call $forwarded (i32.const 99))) i32.const 0")]),
            true,
        ),
        (
            "names a branch that is not there",
            with(&[("credit", "(result i32) i32.const 99")]),
            false,
        ),
        ("never asks for more", with(&[("credit", "(result i32) i32.const -1")]), false),
        (
            "drops everything",
            with(&[
                ("discards", "(param i32) (result i32) i32.const -1"),
                ("interval_ms", "(result i32) i32.const 1"),
            ]),
            false,
        ),
    ];
    for (case, code, fails) in cases {
        // A program that requests nothing, or drops everything, harms its own session.
        let own = !matches!(
            *case,
            "never asks for more" | "names a branch that is not there" | "drops everything"
        );
        let Beside { whole, other_s, failures } = beside(code, Some(host()));
        assert!(whole[1], "{case}: the other session has everything");
        assert!(!own || whole[0], "{case}: its own session, too");
        let slower = other_s / usual;
        assert!(slower < 1.3, "{case}: the other session takes {slower:.2} of its time");
        assert_eq!(failures > 0, *fails, "{case}: {failures} failures");
    }
}

#[test]
fn what_asks_for_too_much_is_refused_in_words() {
    let cases: [(&str, Vec<u8>, &str); 6] = [
        ("something else", b"#!/bin/sh".to_vec(), "not a program"),
        ("too large", vec![0; 70_000], "70000 bytes; it may have 65536"),
        ("files", wat::parse_str("(module (import \"wasi_snapshot_preview1\" \"fd_write\" (func (param i32 i32 i32 i32) (result i32))))").unwrap(), "wasi_snapshot_preview1.fd_write"),
        ("an unknown question", wat::parse_str("(module (import \"faircast\" \"clock\" (func (result i64))))").unwrap(), "faircast_policy_1"),
        ("no policy", wat::parse_str("(module)").unwrap(), "\"faircast_policy_1\""),
        ("much memory", wat::parse_str("(module (memory 40) (func (export \"faircast_policy_1\") (param i32)) \
            (func (export \"credit\") (result i32) i32.const 0) (func (export \"accepts\") (param i32 i32) (result i32) i32.const 0) \
            (func (export \"discards\") (param i32) (result i32) i32.const 0) (func (export \"interval_ms\") (result i32) i32.const 0) (func (export \"drops\") (result i32) i32.const 0))").unwrap(), "fails when it is started"),
    ];
    for (case, code, words) in cases {
        let refused: ProgramError = host().check(&code).unwrap_err();
        assert!(refused.to_string().contains(words), "{case}: {refused}");
    }
    assert!(host().check(&program("worst_path")).is_ok());
}

#[test]
fn sessions_with_programs_pass_where_nobody_runs_any() {
    delivered("no host", &program("worst_path"), None);
    let only = Signers::Only(Vec::new());
    let strict = Arc::new(WasmHost::new(Limits::default(), only).unwrap());
    let (_, failures) = delivered("no signer", &program("worst_path"), Some(strict));
    assert!(failures > 0);
}

struct Counting {
    host: Arc<WasmHost>,
    loads: AtomicUsize,
}

impl ProgramHost for Counting {
    fn load(&self, code: &[u8]) -> PendingLoad {
        self.loads.fetch_add(1, Ordering::Relaxed);
        self.host.load(code)
    }
}

#[test]
fn a_program_comes_over_links_that_lose_and_each_relay_fetches_it_once() {
    // A program near the size limit: sixty parts over links that lose each tenth packet.
    let mut code = program("worst_path");
    let name = b"\x05bytes";
    let filler = vec![7; 60_000];
    let len = name.len() + filler.len();
    let head = [0, len as u8 & 0x7f | 0x80, (len >> 7) as u8 & 0x7f | 0x80, (len >> 14) as u8];
    code.extend_from_slice(&head);
    code.extend_from_slice(name);
    code.extend_from_slice(&filler);
    let counting = Arc::new(Counting { host: host(), loads: AtomicUsize::new(0) });
    let world = World { links: "loss = 0.1\n", ..World::with(&code) };
    let mut failures = Failures::default();
    let outcome = world.run(Some(counting.clone()), &mut failures);
    assert!(outcome.deliveries[0].iter().all(|(it, intact)| *intact && it.completed.is_some()));
    assert_eq!(failures.0, 0);
    assert_eq!(counting.loads.load(Ordering::Relaxed), 2, "one for each relay");
}
