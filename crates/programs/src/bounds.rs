//! Bounds of programs, checked before compilation. They limit the time and memory of the compiler.

use wasmparser::{BinaryReaderError, CompositeInnerType, FunctionBody, Operator, Parser, Payload};
use wasmtime::WasmFeatures;

use crate::signature::ProgramError;

// All chosen. The seven policies have at most 12 functions, 20 locals, 9 nested blocks and 900
// bytes in one function. `cargo bench -p faircast-programs --bench compile` measures the compiler.

/// Most types, functions, imports, exports, globals, and data or element segments, each.
const ITEMS_MAX: u32 = 256;
const PARAMETERS_MAX: usize = 16;
/// Most elements of a table, and of all its segments together.
pub(crate) const ELEMENTS_MAX: u32 = 1024;
const FUNCTION_BYTES_MAX: usize = 16 << 10;
const LOCALS_MAX: u32 = 512;
const NESTED_MAX: u32 = 256;
/// Most targets of one `br_table`, and of all together.
const TARGETS_MAX: u32 = 256;
const ALL_TARGETS_MAX: u32 = 4096;
/// Limit of the sum of locals times blocks: where blocks join, the compiler merges each local.
const MERGES_MAX: u64 = 64 << 10;
/// Most bytes that one `memory.copy` or `memory.fill` may move, since it counts as one instruction.
const MOVED_MAX: i32 = 256;

/// Allowed WebAssembly proposals: those that Rust's compiler uses for `wasm32-unknown-unknown`.
pub(crate) const FEATURES: WasmFeatures = WasmFeatures::FLOATS
    .union(WasmFeatures::MUTABLE_GLOBAL)
    .union(WasmFeatures::SATURATING_FLOAT_TO_INT)
    .union(WasmFeatures::SIGN_EXTENSION)
    .union(WasmFeatures::CALL_INDIRECT_OVERLONG)
    .union(WasmFeatures::BULK_MEMORY_OPT);

/// Refuses a program beyond the bounds. Returns true if it calls the compiler's runtime.
pub(crate) fn check(code: &[u8]) -> Result<bool, ProgramError> {
    let mut walk = Walk::default();
    for payload in Parser::new(0).parse_all(code) {
        walk.take(&payload.map_err(malformed)?)?;
    }
    Ok(walk.calls_runtime)
}

fn malformed(error: BinaryReaderError) -> ProgramError {
    ProgramError::Malformed(error.to_string())
}

pub(crate) fn at_most(what: &'static str, found: u64, max: u64) -> Result<(), ProgramError> {
    if found > max { Err(ProgramError::Bound { what, found, max }) } else { Ok(()) }
}

/// Counts of bounded parts, over all functions.
#[derive(Default)]
struct Walk {
    elements: u64,
    targets: u64,
    merges: u64,
    calls_runtime: bool,
}

impl Walk {
    fn take(&mut self, payload: &Payload<'_>) -> Result<(), ProgramError> {
        let items = |what, count: u32| at_most(what, count.into(), ITEMS_MAX.into());
        match payload {
            Payload::TypeSection(types) => {
                items("types", types.count())?;
                for group in types.clone() {
                    for it in group.map_err(malformed)?.types() {
                        let CompositeInnerType::Func(function) = &it.composite_type.inner else {
                            return Err(ProgramError::Malformed("a type is no function".into()));
                        };
                        let numbers = function.params().len().max(function.results().len());
                        at_most("parameters of a function", numbers as u64, PARAMETERS_MAX as u64)?;
                    }
                }
                Ok(())
            }
            Payload::ImportSection(imports) => items("imports", imports.count()),
            Payload::FunctionSection(functions) => items("functions", functions.count()),
            Payload::TableSection(tables) => at_most("tables", tables.count().into(), 1),
            Payload::MemorySection(memories) => at_most("memories", memories.count().into(), 1),
            Payload::GlobalSection(globals) => items("globals", globals.count()),
            Payload::ExportSection(exports) => items("exports", exports.count()),
            Payload::DataSection(data) => items("segments of data", data.count()),
            Payload::ElementSection(elements) => {
                items("segments of elements", elements.count())?;
                for segment in elements.clone() {
                    self.elements += match segment.map_err(malformed)?.items {
                        wasmparser::ElementItems::Functions(all) => u64::from(all.count()),
                        wasmparser::ElementItems::Expressions(_, all) => u64::from(all.count()),
                    };
                }
                at_most("elements of tables", self.elements, ELEMENTS_MAX.into())
            }
            Payload::CodeSectionEntry(body) => self.function(body),
            _ => Ok(()),
        }
    }

    fn function(&mut self, body: &FunctionBody<'_>) -> Result<(), ProgramError> {
        at_most("bytes in one function", body.range().len() as u64, FUNCTION_BYTES_MAX as u64)?;
        let mut locals = 0;
        for group in body.get_locals_reader().map_err(malformed)? {
            locals += u64::from(group.map_err(malformed)?.0);
        }
        at_most("locals in one function", locals, LOCALS_MAX.into())?;
        let (mut nested, mut blocks) = (0, 0);
        let mut constant = None;
        let mut operators = body.get_operators_reader().map_err(malformed)?;
        while !operators.eof() {
            let before = constant.take();
            match operators.read().map_err(malformed)? {
                Operator::Block { .. } | Operator::Loop { .. } | Operator::If { .. } => {
                    (nested, blocks) = (nested + 1, blocks + 1);
                    at_most("blocks in each other", nested, NESTED_MAX.into())?;
                }
                Operator::End => nested = nested.saturating_sub(1),
                Operator::BrIf { .. } | Operator::Else => blocks += 1,
                Operator::BrTable { targets } => {
                    at_most("targets of a branch", targets.len().into(), TARGETS_MAX.into())?;
                    self.targets += u64::from(targets.len());
                    blocks += u64::from(targets.len());
                }
                Operator::I32Const { value } => constant = Some(value),
                Operator::MemoryCopy { .. } | Operator::MemoryFill { .. } => {
                    if !before.is_some_and(|bytes| (0..=MOVED_MAX).contains(&bytes)) {
                        return Err(ProgramError::Moves { max: MOVED_MAX });
                    }
                    self.calls_runtime = true;
                }
                Operator::MemoryGrow { .. } => self.calls_runtime = true,
                _ => {}
            }
        }
        at_most("targets of branches", self.targets, ALL_TARGETS_MAX.into())?;
        self.merges += (locals + PARAMETERS_MAX as u64) * blocks;
        at_most("locals times blocks", self.merges, MERGES_MAX)
    }
}
