//! Tests of programs that try to stop a relay by long compilation or long calls.

use std::sync::Arc;
use std::thread;
use std::time::Duration;

use faircast_base::{Duration as Span, Time};
use faircast_programs::{Limits, LiveHost, Signers, WasmHost};
use faircast_proto::credit::{Loaded, PendingLoad, ProgramHost};

use crate::built::program;
use crate::faults::{delivered, host};
use crate::text::{functions, nested, table, with, with_more};

fn credit(body: &str) -> Vec<u8> {
    credit_with(body, "")
}

fn credit_with(body: &str, more: &str) -> Vec<u8> {
    with_more(&[("credit", &format!("(result i32) {body} i32.const 0"))], more)
}

fn refused() -> Vec<(&'static str, Vec<u8>, &'static str)> {
    let locals = |count: usize| format!("(local {})", "i32 ".repeat(count));
    let many = locals(500);
    let segments = "(data (i32.const 0) \"\")".repeat(300);
    let elements = format!("(table 2 funcref) (elem (i32.const 0) {})", "0 ".repeat(1100));
    let globals = "(global i32 (i32.const 0))".repeat(300);
    let types = (0..300).map(|it| format!("(type (func {}))", "(param i32)".repeat(it % 10)));
    let types: String = types.collect();
    let exports: String = (0..300).map(|it| format!("(export \"e{it}\" (func 1))")).collect();
    let merges = nested("loop", 200, "local.get 0 drop");
    vec![
        ("locals", functions(1, &locals(50_000)), "50000 locals"),
        ("locals of each function", functions(100, &locals(600)), "600 locals"),
        ("loops over locals", functions(4, &format!("{many} {merges}")), "locals times blocks"),
        ("deep blocks", credit(&nested("block", 1000, "")), "blocks in each other"),
        ("deep loops", credit(&nested("loop", 300, "")), "blocks in each other"),
        ("a branch with many targets", credit(&table(1000)), "targets of a branch"),
        ("many such branches", functions(60, &table(250)), "targets of branches"),
        ("a long function", credit(&"i64.const -1 drop ".repeat(10_000)), "bytes in one function"),
        ("many functions", functions(5000, ""), "functions"),
        ("many types", with_more(&[], &types), "types"),
        (
            "many parameters",
            with_more(&[], &format!("(type (func {}))", "(param i32)".repeat(1000))),
            "parameters",
        ),
        ("many globals", with_more(&[], &globals), "globals"),
        ("many exports", with_more(&[], &exports), "exports"),
        ("many segments", with_more(&[], &segments), "segments of data"),
        ("many elements", with_more(&[], &elements), "elements of tables"),
        ("two tables", with_more(&[], "(table 1 funcref) (table 1 funcref)"), "tables"),
        ("two memories", with_more(&[], "(memory 1)"), "memories"),
        (
            "memory.fill",
            credit("(memory.fill (i32.const 0) (i32.const 0) (i32.const 60000))"),
            "memory.fill",
        ),
        (
            "a length that is computed",
            credit(
                "(memory.copy (i32.const 0) (i32.const 1) (i32.add (i32.const 9) (i32.const 9)))",
            ),
            "bulk-memory",
        ),
        (
            "a negative length",
            credit("(memory.fill (i32.const 0) (i32.const 0) (i32.const -1))"),
            "memory.fill",
        ),
        (
            "memory.init",
            credit_with(
                "(memory.init $d (i32.const 0) (i32.const 0) (i32.const 1))",
                "(data $d \"1\")",
            ),
            "not a program",
        ),
        (
            "table.fill",
            credit_with(
                "(table.fill $t (i32.const 0) (ref.null func) (i32.const 9))",
                "(table $t 10 funcref)",
            ),
            "not a program",
        ),
        (
            "table.grow",
            credit_with(
                "(drop (table.grow $t (ref.null func) (i32.const 9)))",
                "(table $t 10 funcref)",
            ),
            "not a program",
        ),
        (
            "vectors",
            credit("(drop (i32x4.extract_lane 0 (v128.const i32x4 1 2 3 4)))"),
            "not a program",
        ),
        (
            "threads",
            credit("(drop (i32.atomic.rmw.add (i32.const 0) (i32.const 1)))"),
            "not a program",
        ),
        ("tail calls", with(&[("credit", "(result i32) return_call 2")]), "not a program"),
        (
            "several results",
            with_more(&[], "(func (result i32 i32) i32.const 1 i32.const 2)"),
            "not a program",
        ),
        ("an exception", with_more(&[], "(tag)"), "not a program"),
        ("a large memory", wat::parse_str("(module (memory i64 1))").unwrap(), "not a program"),
    ]
}

#[test]
fn what_would_take_the_compiler_or_a_question_long_is_refused_in_words() {
    let host = host();
    for (case, code, words) in refused() {
        let error = host.check(&code).expect_err(case).to_string();
        assert!(error.contains(words), "{case}: {error}");
    }
}

#[test]
fn what_compilers_make_of_a_sound_policy_is_allowed() {
    for (case, code) in [
        ("moves some bytes", credit("(memory.copy (i32.const 0) (i32.const 64) (i32.const 64))")),
        ("fills some bytes", credit("(memory.fill (i32.const 0) (i32.const 1) (i32.const 256))")),
        (
            "calls what a table names",
            with_more(
                &[],
                "(table 1 funcref) (elem (i32.const 0) 1) (type $t (func (param i32))) (func (call_indirect (type $t) (i32.const 1) (i32.const 0)))",
            ),
        ),
        (
            "a match with many arms",
            credit(&nested("block", 200, &format!("i32.const 0 br_table {}", "0 ".repeat(200)))),
        ),
        ("starts by itself", with_more(&[], "(func $start) (start $start)")),
    ] {
        assert!(host().check(&code).is_ok(), "{case}: {:?}", host().check(&code));
    }
}

#[test]
fn instructions_that_call_the_runtime_leave_a_sixteenth_of_all() {
    let counts = |work: &str| {
        let body = format!(
            "(local i32) (loop $again {work} (br_if $again (i32.lt_u (local.tee 0 (i32.add (local.get 0) (i32.const 1))) (i32.const 300))))"
        );
        let body = body.replace("(local i32)", "(result i32) (local i32)") + " i32.const 1";
        let program = host().load_now(&with(&[("drops", &body)])).unwrap();
        program.start(0).unwrap().drops().is_ok()
    };
    assert!(counts("(drop (i32.add (i32.const 0) (i32.const 0)))"));
    assert!(!counts("(drop (memory.grow (i32.const 0)))"));
    assert!(!counts("(memory.fill (i32.const 0) (i32.const 0) (i32.const 256))"));
}

#[test]
fn a_start_function_has_no_more_instructions_than_a_question() {
    let many = |work: &str| {
        format!(
            "(loop $again {work} (br_if $again (i32.lt_u (local.tee 0 (i32.add (local.get 0) (i32.const 1))) (i32.const 300))))"
        )
    };
    for (body, fits) in [
        (many("(drop (i32.add (i32.const 0) (i32.const 0)))"), true),
        (many("(drop (memory.grow (i32.const 0)))"), false),
        ("(loop $again br $again)".to_string(), false),
    ] {
        let start = format!("(func $start (local i32) {body}) (start $start)");
        match host().check(&with_more(&[], &start)) {
            Ok(_) => assert!(fits, "{body}"),
            Err(error) => {
                let text = error.to_string();
                assert!(!fits && text.contains("fails when it is started"), "{body}: {text}");
            }
        }
    }
}

fn await_result(mut pending: PendingLoad) -> Loaded {
    loop {
        if let Some(loaded) = pending(Time::ZERO) {
            return loaded;
        }
        thread::sleep(Duration::from_millis(1));
    }
}

#[test]
fn a_question_ends_though_its_instructions_do_not() {
    let limits = Limits { fuel: u64::MAX / 4, ..Limits::default() };
    let live = LiveHost::new(limits, Signers::Any).unwrap();
    let endless = with(&[("drops", "(result i32) (loop $again br $again) i32.const 1")]);
    let mut running = await_result(live.load(&endless)).unwrap().start(0).unwrap();
    let fault = running.drops().unwrap_err();
    assert!(fault.0.contains("interrupt"), "{fault:?}");
    let mut running = await_result(live.load(&program("worst_path"))).unwrap().start(0).unwrap();
    assert!((0..100_000).all(|_| running.drops().is_ok()));
}

#[test]
fn a_live_host_refuses_what_another_refuses_and_goes_on() {
    let live = LiveHost::new(Limits::default(), Signers::Any).unwrap();
    let given_up = live.load(&program("worst_path"));
    drop(given_up);
    let bad = functions(1, &format!("(local {})", "i32 ".repeat(50_000)));
    let why = await_result(live.load(&bad)).err().unwrap();
    assert!(why.contains("50000 locals"), "{why}");
    assert!(await_result(live.load(&program("worst_path"))).is_ok());
    let all: Vec<_> = (0..300).map(|_| live.load(&bad)).collect();
    assert!(all.into_iter().all(|pending| await_result(pending).is_err()));
}

struct Slow(Arc<WasmHost>, Span);

impl ProgramHost for Slow {
    fn load(&self, code: &[u8]) -> PendingLoad {
        let (mut pending, takes, mut began) = (self.0.load(code), self.1, None);
        Box::new(move |now| {
            let began = *began.get_or_insert(now);
            if now.since(began) >= takes { pending(now) } else { None }
        })
    }
}

#[test]
fn while_a_program_is_compiled_its_session_waits_and_the_other_does_not() {
    let code = program("worst_path");
    let (usual, _) = delivered("at once", &code, Some(host()));
    let slow = |ms| Arc::new(Slow(host(), Span::from_millis(ms)));
    let (beside, failures) = delivered("in a second", &code, Some(slow(1000)));
    assert_eq!(failures, 0);
    assert!(beside < usual * 1.1, "the other session: {usual} s, then {beside} s");
    // Both relays give up the load, and forward the session without credits.
    let (beside, failures) = delivered("never", &code, Some(slow(1_000_000)));
    assert_eq!(failures, 2);
    assert!(beside < usual * 1.3, "the other session: {usual} s, then {beside} s");
}
