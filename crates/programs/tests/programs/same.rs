//! Tests that a policy has the same results as WebAssembly and natively, up to the last record.

use std::sync::{Arc, OnceLock};

use faircast_programs::{Limits, Signers, WasmHost};
use faircast_proto::credit::{
    PendingLoad, ProgramFault, ProgramHost, RunningProgram, SessionProgram,
};
use faircast_relay_sdk::{
    BestPath, BoundedLag, Deadline, LayeredDrop, Policy, Quantile, View, WeightedUtility, WorstPath,
};
use proptest::prelude::*;

use crate::built::{ALL, program};
use crate::state::State;
use crate::world::{World, traced};

struct Native<P>(fn(u32) -> P);

impl<P: Policy + Send + 'static> SessionProgram for Native<P> {
    fn start(&self, parameter: u32) -> Result<Box<dyn RunningProgram>, ProgramFault> {
        Ok(Box::new(Running((self.0)(parameter))))
    }
}

struct Running<P>(P);

struct Seen<'a>(&'a dyn View);

impl View for Seen<'_> {
    fn branches(&self) -> u32 {
        self.0.branches()
    }
    fn forwarded(&self, branch: u32) -> i64 {
        self.0.forwarded(branch)
    }
    fn reported(&self) -> i64 {
        self.0.reported()
    }
    fn queued(&self, branch: u32) -> u32 {
        self.0.queued(branch)
    }
    fn buffer(&self) -> u32 {
        self.0.buffer()
    }
    fn weight(&self, branch: u32) -> u32 {
        self.0.weight(branch)
    }
    fn waited_ms(&self, branch: u32) -> u32 {
        self.0.waited_ms(branch)
    }
    fn unit(&self) -> u32 {
        self.0.unit()
    }
}

impl<P: Policy + Send> RunningProgram for Running<P> {
    fn credit(&mut self, view: &dyn View) -> Result<Option<u32>, ProgramFault> {
        Ok(self.0.credit(&Seen(view)))
    }
    fn accepts(&mut self, view: &dyn View, branch: u32, layer: u8) -> Result<bool, ProgramFault> {
        Ok(self.0.accepts(&Seen(view), branch, layer))
    }
    fn discards(&mut self, view: &dyn View, branch: u32) -> Result<u32, ProgramFault> {
        Ok(self.0.discards(&Seen(view), branch))
    }
    fn interval_ms(&mut self) -> Result<Option<u32>, ProgramFault> {
        Ok(self.0.interval_ms())
    }
    fn drops(&mut self) -> Result<bool, ProgramFault> {
        Ok(P::DROPS)
    }
}

fn native(name: &str) -> Arc<dyn SessionProgram> {
    match name {
        "worst_path" => Arc::new(Native(|_| WorstPath)),
        "best_path" => Arc::new(Native(|_| BestPath)),
        "quantile" => Arc::new(Native(|percent| Quantile { percent: percent.clamp(1, 100) })),
        "bounded_lag" => Arc::new(Native(|packets| BoundedLag { packets })),
        "deadline" => Arc::new(Native(|ms| Deadline { ms: ms.max(1) })),
        "layered_drop" => Arc::new(Native(|_| LayeredDrop)),
        _ => Arc::new(Native(|_| WeightedUtility)),
    }
}

fn wasm() -> WasmHost {
    WasmHost::new(Limits::default(), Signers::Any).unwrap()
}

struct NativeHost;

impl ProgramHost for NativeHost {
    fn load(&self, code: &[u8]) -> PendingLoad {
        let name = ALL.iter().find(|name| program(name) == code);
        let mut loaded = Some(name.map(|name| native(name)).ok_or("none of the seven".to_string()));
        Box::new(move |_| loaded.take())
    }
}

#[test]
fn a_simulation_is_the_same_with_a_policy_as_webassembly_and_as_it_is() {
    for name in ALL {
        let code = program(name);
        let parameter = if name == "deadline" { 40 } else { 4 };
        let world = World { layers: 4, parameter, ..World::with(&code) };
        let one = traced(&world, Arc::new(NativeHost));
        let other = traced(&world, Arc::new(wasm()));
        assert!(one.len() > 1000, "{name}: {} records", one.len());
        assert!(!one.iter().any(|record| record.contains("reason: Program")), "{name} runs");
        assert!(one == other, "{name}");
    }
}

fn state() -> impl Strategy<Value = State> {
    let branch = (0..60i64, 0..40u32, 1..9u32, 0..200u32);
    let branches = prop::collection::vec(branch, 1..7);
    (branches, 0..50i64, 1..40u32, 1..20u32).prop_map(|(branches, reported, buffer, unit)| State {
        branches,
        reported,
        buffer,
        unit,
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    #[test]
    fn verdicts_are_the_same(
        states in prop::collection::vec((state(), 0..4u8), 1..20),
        parameter in 0..120u32,
    ) {
        static LOADED: OnceLock<Vec<Arc<dyn SessionProgram>>> = OnceLock::new();
        let loaded = || ALL.iter().map(|name| wasm().load_now(&program(name)).unwrap()).collect();
        for (name, loaded) in ALL.iter().zip(LOADED.get_or_init(loaded)) {
            let mut one = native(name).start(parameter).unwrap();
            let mut other = loaded.start(parameter).unwrap();
            prop_assert_eq!(one.interval_ms(), other.interval_ms());
            prop_assert_eq!(one.drops(), other.drops());
            for (state, layer) in &states {
                prop_assert_eq!(one.credit(state), other.credit(state), "{}", name);
                for branch in 0..state.branches() {
                    let accepts = [&mut one, &mut other].map(|it| it.accepts(state, branch, *layer));
                    prop_assert_eq!(&accepts[0], &accepts[1], "{}", name);
                    let discards = [&mut one, &mut other].map(|it| it.discards(state, branch));
                    prop_assert_eq!(&discards[0], &discards[1], "{}", name);
                }
            }
        }
    }
}
