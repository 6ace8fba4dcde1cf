//! Benchmark of the compiler on the slowest programs within the bounds.
//! Run: `cargo bench -p faircast-programs --bench compile`.

#[path = "../tests/programs/text.rs"]
#[allow(dead_code, reason = "programs of tests need more")]
mod text;

use divan::Bencher;
use faircast_programs::{Limits, Signers, WasmHost};
use text::{functions, nested, table, with, with_more};

fn main() {
    divan::main();
}

const CASES: [&str; 12] = [
    "nothing",
    "many functions",
    "calls",
    "targets",
    "live values",
    "sums of live values",
    "large constants",
    "loads",
    "loops of all locals",
    "conditions",
    "i64.div_s",
    "i64.rotl",
];

fn code(case: &str) -> Vec<u8> {
    match case {
        "nothing" => with(&[]),
        "many functions" => functions(240, &"i32.const 1000000 drop ".repeat(30)),
        "calls" => {
            let function = format!("(func {})", "(call 2 (i32.const 0))".repeat(3000));
            with_more(&[], &function.repeat(4))
        }
        "targets" => functions(15, &table(250)),
        "live values" => {
            let body = "i32.const 7 i32.load ".repeat(2500) + &"drop ".repeat(2500);
            functions(3, &body)
        }
        "sums of live values" => {
            let body = "i32.const 0 i32.load ".repeat(2500) + &"i32.add ".repeat(2499) + "drop";
            functions(3, &body)
        }
        "large constants" => functions(5, &"i64.const -9223372036854775807 drop ".repeat(1300)),
        "loads" => functions(4, &"(drop (i64.load offset=65000 (i32.const 8)))".repeat(2000)),
        "loops of all locals" => {
            let set = |it| format!("local.get {it} i32.const 1 i32.add local.set {it} ");
            let sets: String = (0..512).map(set).collect();
            let loops = nested("loop", 100, &format!("{sets} i32.const 0 br_if 0"));
            functions(1, &format!("(local {}) {loops}", "i32 ".repeat(512)))
        }
        "conditions" => {
            let store = "(i32.store (i32.const 0) (i32.const 1))";
            functions(4, &format!("(if (i32.load (i32.const 0)) (then {store}))").repeat(900))
        }
        operator => {
            let chain = format!("i64.const 3 {operator} ").repeat(5000);
            functions(3, &format!("i64.const 7 {chain} drop"))
        }
    }
}

#[divan::bench(args = CASES, sample_count = 5)]
fn compile(bencher: Bencher<'_, '_>, case: &str) {
    let host = WasmHost::new(Limits::default(), Signers::Any).expect("this machine runs programs");
    let code = code(case);
    bencher.bench(|| host.check(&code).is_ok());
}
