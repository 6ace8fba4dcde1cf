//! Host of programs: compiles them, and provides imports that read the state of the relay.

use std::sync::Arc;

use faircast_proto::credit::{
    Loaded, PROGRAM_BYTES_MAX, PendingLoad, ProgramFault, ProgramHost, RunningProgram,
    SessionProgram,
};
use faircast_relay_sdk::View;
use wasmtime::{
    Config, Engine, ExternType, Instance, Linker, Module, Store, StoreLimits, StoreLimitsBuilder,
    TypedFunc, UpdateDeadline, ValType, WasmFeatures,
};

use crate::bounds;
use crate::clock::{Clock, RunningGuard, Spent};
use crate::signature::{ProgramError, Signers, VerifyingKey, signer};

const IMPORTS: &str = "faircast";

/// Limits of a call to a program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Instructions of a call; each branch adds `fuel_per_branch`.
    pub fuel: u64,
    /// Additional instructions of a call for each branch.
    pub fuel_per_branch: u64,
    /// Memory of a program.
    pub memory_bytes: usize,
}

impl Default for Limits {
    /// 10 000 instructions, 1000 more a branch, and 2 MiB: Rust programs have a stack of 1 MiB.
    fn default() -> Self {
        Self { fuel: 10_000, fuel_per_branch: 1000, memory_bytes: 2 << 20 }
    }
}

/// Host for the simulator and for checks: compiles at once, and limits calls by instructions only,
/// so that runs are repeatable. Relays on real networks use [`LiveHost`](crate::LiveHost).
pub struct WasmHost {
    pub(crate) engine: Engine,
    linker: Arc<Linker<Relay>>,
    limits: Limits,
    signers: Signers,
    pub(crate) clock: Option<Arc<Clock>>,
}

struct Relay {
    view_copy: ViewCopy,
    memory: StoreLimits,
    spent: Spent,
}

/// Copy of the relay's state of a session, made before each call.
#[derive(Default)]
struct ViewCopy {
    reported: i64,
    buffer: u32,
    unit: u32,
    branches: Vec<Branch>,
}

#[derive(Clone, Copy)]
struct Branch {
    forwarded: i64,
    queued: u32,
    weight: u32,
    waited_ms: u32,
}

impl WasmHost {
    /// Creates a host for programs that `signers` allow; fails if this machine cannot run programs.
    pub fn new(limits: Limits, signers: Signers) -> Result<Self, ProgramError> {
        let mut config = Config::new();
        config.consume_fuel(true).epoch_interruption(true);
        config.max_wasm_stack(64 << 10).cranelift_nan_canonicalization(true);
        config.wasm_features(WasmFeatures::all(), false).wasm_features(bounds::FEATURES, true);
        config.memory_reservation(limits.memory_bytes as u64).memory_guard_size(64 << 10);
        let engine = Engine::new(&config).map_err(ProgramError::host)?;
        let linker = linker(&engine).map_err(ProgramError::host)?;
        Ok(Self { engine, linker: Arc::new(linker), limits, signers, clock: None })
    }

    /// Checks a program, and starts it once; fails if refused, or at the start. Returns the signer.
    pub fn check(&self, code: &[u8]) -> Result<Option<VerifyingKey>, ProgramError> {
        let program = self.compile(code)?;
        program.run(0).map_err(|fault| ProgramError::Fails(fault.0))?;
        signer(code)
    }

    /// Checks and compiles a program; the error gives the reason of a refusal.
    pub fn load_now(&self, code: &[u8]) -> Loaded {
        let program = self.compile(code).map_err(|error| error.to_string())?;
        Ok(Arc::new(program))
    }

    fn compile(&self, code: &[u8]) -> Result<WasmProgram, ProgramError> {
        bounds::at_most("bytes", code.len() as u64, PROGRAM_BYTES_MAX.into())?;
        self.signers.allow(code)?;
        let calls_runtime = bounds::check(code)?;
        let module = Module::new(&self.engine, code)
            .map_err(|error| ProgramError::Malformed(error.to_string()))?;
        if let Some(import) = module.imports().find(|import| import.module() != IMPORTS) {
            return Err(ProgramError::Import(format!("{}.{}", import.module(), import.name())));
        }
        for (name, parameters, results) in EXPORTS {
            let is_number = |it: ValType| matches!(it, ValType::I32);
            let is_right = |export: &ExternType| match export {
                ExternType::Func(found) => {
                    (found.params().len(), found.results().len()) == (*parameters, *results)
                        && found.params().chain(found.results()).all(is_number)
                }
                _ => false,
            };
            module.get_export(name).filter(is_right).ok_or(ProgramError::Export(name))?;
        }
        let (engine, linker) = (self.engine.clone(), self.linker.clone());
        let ready = linker
            .instantiate_pre(&module)
            .map_err(|error| ProgramError::Malformed(error.to_string()))?;
        let (limits, clock) = (self.limits, self.clock.clone());
        Ok(WasmProgram { engine, ready, limits, calls_runtime, clock })
    }
}

/// Cost of an instruction that calls the compiler's runtime (`memory.grow`, `memory.copy`,
/// `memory.fill`): divides the limit of a program that has some. Measured: 10 to 15.
const RUNTIME_CALL: u64 = 16;

/// Functions that a program exports, with the numbers of their parameters and results.
const EXPORTS: &[(&str, usize, usize)] = &[
    ("faircast_policy_1", 1, 0),
    ("credit", 0, 1),
    ("accepts", 2, 1),
    ("discards", 1, 1),
    ("interval_ms", 0, 1),
    ("drops", 0, 1),
];

impl ProgramHost for WasmHost {
    fn load(&self, code: &[u8]) -> PendingLoad {
        let mut loaded = Some(self.load_now(code));
        Box::new(move |_| loaded.take())
    }
}

fn linker(engine: &Engine) -> wasmtime::Result<Linker<Relay>> {
    type Caller<'a> = wasmtime::Caller<'a, Relay>;
    let branch = |caller: &Caller<'_>, branch: u32| {
        let found = caller.data().view_copy.branches.get(branch as usize).copied();
        found.ok_or_else(|| wasmtime::Error::msg(format!("there is no branch {branch}")))
    };
    let mut linker = Linker::new(engine);
    linker.func_wrap(IMPORTS, "branches", |caller: Caller<'_>| {
        caller.data().view_copy.branches.len() as u32
    })?;
    linker.func_wrap(IMPORTS, "reported", |caller: Caller<'_>| caller.data().view_copy.reported)?;
    linker.func_wrap(IMPORTS, "buffer", |caller: Caller<'_>| caller.data().view_copy.buffer)?;
    linker.func_wrap(IMPORTS, "unit", |caller: Caller<'_>| caller.data().view_copy.unit)?;
    linker.func_wrap(IMPORTS, "forwarded", move |caller: Caller<'_>, it: u32| {
        branch(&caller, it).map(|it| it.forwarded)
    })?;
    linker.func_wrap(IMPORTS, "queued", move |caller: Caller<'_>, it: u32| {
        branch(&caller, it).map(|it| it.queued)
    })?;
    linker.func_wrap(IMPORTS, "weight", move |caller: Caller<'_>, it: u32| {
        branch(&caller, it).map(|it| it.weight)
    })?;
    linker.func_wrap(IMPORTS, "waited_ms", move |caller: Caller<'_>, it: u32| {
        branch(&caller, it).map(|it| it.waited_ms)
    })?;
    Ok(linker)
}

struct WasmProgram {
    engine: Engine,
    ready: wasmtime::InstancePre<Relay>,
    limits: Limits,
    /// True if instructions of the program call the compiler's runtime.
    calls_runtime: bool,
    clock: Option<Arc<Clock>>,
}

impl WasmProgram {
    fn run(&self, parameter: u32) -> Result<Running, ProgramFault> {
        let mut limits = self.limits;
        if self.calls_runtime {
            limits.fuel /= RUNTIME_CALL;
            limits.fuel_per_branch /= RUNTIME_CALL;
        }
        let memory = StoreLimitsBuilder::new()
            .memory_size(limits.memory_bytes)
            .table_elements(bounds::ELEMENTS_MAX as usize)
            .instances(1)
            .memories(1)
            .tables(1)
            .trap_on_grow_failure(true)
            .build();
        let relay = Relay { view_copy: ViewCopy::default(), memory, spent: Spent::default() };
        let mut store = Store::new(&self.engine, relay);
        store.limiter(|relay| &mut relay.memory);
        store.epoch_deadline_callback(|mut store| {
            let has_time = store.data_mut().spent.has_time_left();
            Ok(if has_time { UpdateDeadline::Continue(1) } else { UpdateDeadline::Interrupt })
        });
        let _running = self.clock.as_deref().map(Clock::program);
        begin(&mut store, limits, 0)?;
        let instance = self.ready.instantiate(&mut store).map_err(fault)?;
        let start: TypedFunc<u32, ()> = function(&mut store, &instance, "faircast_policy_1")?;
        let credit = function(&mut store, &instance, "credit")?;
        let accepts = function(&mut store, &instance, "accepts")?;
        let discards = function(&mut store, &instance, "discards")?;
        let interval = function(&mut store, &instance, "interval_ms")?;
        let drops = function(&mut store, &instance, "drops")?;
        start.call(&mut store, parameter).map_err(fault)?;
        Ok(Running { store, limits, _running, credit, accepts, discards, interval, drops })
    }
}

fn function<P: wasmtime::WasmParams, R: wasmtime::WasmResults>(
    store: &mut Store<Relay>,
    instance: &Instance,
    name: &str,
) -> Result<TypedFunc<P, R>, ProgramFault> {
    instance.get_typed_func(store, name).map_err(fault)
}

fn fault(error: wasmtime::Error) -> ProgramFault {
    ProgramFault(format!("{error:#}"))
}

impl SessionProgram for WasmProgram {
    fn start(&self, parameter: u32) -> Result<Box<dyn RunningProgram>, ProgramFault> {
        Ok(Box::new(self.run(parameter)?))
    }
}

/// Instance of a program. Its store is filled with state and fuel before each call.
struct Running {
    store: Store<Relay>,
    limits: Limits,
    /// Keeps the clock running while the program may be called.
    _running: Option<RunningGuard>,
    credit: TypedFunc<(), i32>,
    accepts: TypedFunc<(u32, u32), i32>,
    discards: TypedFunc<u32, u32>,
    interval: TypedFunc<(), u32>,
    drops: TypedFunc<(), u32>,
}

/// Grants the instructions and the processor time of a call.
fn begin(store: &mut Store<Relay>, limits: Limits, branches: usize) -> Result<(), ProgramFault> {
    let Limits { fuel, fuel_per_branch, .. } = limits;
    let fuel = fuel_per_branch.saturating_mul(branches as u64).saturating_add(fuel);
    store.set_fuel(fuel).map_err(fault)?;
    store.set_epoch_deadline(1);
    store.data_mut().spent = Spent::default();
    Ok(())
}

impl Running {
    fn prepare(&mut self, view: &dyn View) -> Result<(), ProgramFault> {
        let copy = &mut self.store.data_mut().view_copy;
        (copy.reported, copy.buffer, copy.unit) = (view.reported(), view.buffer(), view.unit());
        copy.branches.clear();
        copy.branches.extend((0..view.branches()).map(|it| Branch {
            forwarded: view.forwarded(it),
            queued: view.queued(it),
            weight: view.weight(it),
            waited_ms: view.waited_ms(it),
        }));
        let branches = copy.branches.len();
        begin(&mut self.store, self.limits, branches)
    }
}

impl RunningProgram for Running {
    fn credit(&mut self, view: &dyn View) -> Result<Option<u32>, ProgramFault> {
        self.prepare(view)?;
        let chosen = self.credit.call(&mut self.store, ()).map_err(fault)?;
        Ok(u32::try_from(chosen).ok())
    }

    fn accepts(&mut self, view: &dyn View, branch: u32, layer: u8) -> Result<bool, ProgramFault> {
        self.prepare(view)?;
        let accepts = self.accepts.call(&mut self.store, (branch, layer.into())).map_err(fault)?;
        Ok(accepts != 0)
    }

    fn discards(&mut self, view: &dyn View, branch: u32) -> Result<u32, ProgramFault> {
        self.prepare(view)?;
        self.discards.call(&mut self.store, branch).map_err(fault)
    }

    fn interval_ms(&mut self) -> Result<Option<u32>, ProgramFault> {
        begin(&mut self.store, self.limits, 0)?;
        let ms = self.interval.call(&mut self.store, ()).map_err(fault)?;
        Ok((ms > 0).then_some(ms))
    }

    fn drops(&mut self) -> Result<bool, ProgramFault> {
        begin(&mut self.store, self.limits, 0)?;
        Ok(self.drops.call(&mut self.store, ()).map_err(fault)? != 0)
    }
}

impl core::fmt::Debug for WasmHost {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        let Self { limits, signers, .. } = self;
        f.debug_struct("WasmHost").field("limits", limits).field("signers", signers).finish()
    }
}
