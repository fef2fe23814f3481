//! An MLIR context with the dialects and translations this compiler uses, and modules of functions built in it.

use melior::Context;
use melior::dialect::{DialectHandle, DialectRegistry};
use melior::ir::operation::OperationLike;
use melior::ir::{BlockLike, Module, RegionLike};
use melior::pass::{Pass, PassManager, conversion};
use melior::utility::register_all_llvm_translations;
use mlir_sys::{
    mlirBlockGetTerminator, mlirGetDialectHandle__nvvm__, mlirOperationDestroy, mlirOperationRemoveFromParent,
};

use super::builder::{Builder, Val};
use super::machine::Machine;
use super::types::{Elem, Space, Ty};

/// The passes between what the emitters build and what LLVM takes, verified after each.
const PASSES: &[fn() -> Pass] = &[
    conversion::create_scf_to_control_flow,
    conversion::create_arith_to_llvm,
    conversion::create_control_flow_to_llvm,
    conversion::create_reconcile_unrealized_casts,
];

/// A context, made once and used for every kernel of a process.
pub struct Session {
    context: Context,
}

impl Default for Session {
    fn default() -> Self {
        Session::new()
    }
}

impl Session {
    pub fn new() -> Session {
        let registry = DialectRegistry::new();
        for handle in
            [DialectHandle::llvm(), DialectHandle::scf(), DialectHandle::cf(), DialectHandle::arith()]
        {
            handle.insert_dialect(&registry);
        }
        // SAFETY: the handle is a static object of the linked NVVM dialect.
        unsafe { DialectHandle::from_raw(mlirGetDialectHandle__nvvm__()) }.insert_dialect(&registry);
        // One thread: the process is forked around every lowering, and a child has only the thread that forked.
        let context = Context::new_with_registry(&registry, false);
        register_all_llvm_translations(&context);
        context.load_all_available_dialects();
        Session { context }
    }

    pub fn context(&self) -> &Context {
        &self.context
    }

    /// An empty module.
    pub fn module(&self, machine: Machine) -> ModuleBuilder<'_> {
        ModuleBuilder { session: self, machine, capability: 0, text: String::new(), bodies: vec![] }
    }
}

/// An argument of a function.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Argument {
    pub ty: Ty,
    pub kind: ArgumentKind,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ArgumentKind {
    /// Passed by value.
    Plain,
    /// A pointer to memory that this function alone reaches through it.
    Exclusive,
    /// A pointer to memory that nothing writes while the function runs.
    ReadOnly,
    /// A `CUtensorMap`, passed as its bytes.
    TensorMap,
}

/// The function's linkage and launch bounds.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum EntryKind {
    /// A grid kernel with a fixed block of threads, and clusters of so many blocks.
    Kernel { threads: u32, blocks: u32, limit: Option<Limit> },
    /// A plain C function.
    Host,
    /// A function that only this module calls.
    Internal,
}

/// What bounds the registers of a thread.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Limit {
    /// Their maximum.
    Registers(u32),
    /// So many blocks should fit on a multiprocessor.
    Blocks(u32),
}

impl Limit {
    pub fn registers(self) -> Option<u32> {
        match self {
            Limit::Registers(most) => Some(most),
            Limit::Blocks(_) => None,
        }
    }
}

type Body<'a> = Box<dyn FnOnce(&mut Builder, &[Val]) + 'a>;

/// A module being put together: globals and functions first as text, then their bodies.
pub struct ModuleBuilder<'s> {
    session: &'s Session,
    /// What its code is for.
    pub machine: Machine,
    /// The least capability of the GPU.
    pub capability: u32,
    text: String,
    bodies: Vec<(Vec<Ty>, Body<'s>)>,
}

impl<'s> ModuleBuilder<'s> {
    /// Shared memory of a fixed size, private to the block.
    pub fn shared(&mut self, name: &str, bytes: u32) {
        self.text += &format!(
            "llvm.mlir.global internal @{name}() {{addr_space = 3 : i32, alignment = 1024 : i64}} : !llvm.array<{bytes} x i8>\n"
        );
    }

    /// Shared memory whose size the launch gives.
    pub fn dynamic_shared(&mut self, name: &str) {
        self.text += &format!(
            "llvm.mlir.global external @{name}() {{addr_space = 3 : i32, alignment = 1024 : i64}} : !llvm.array<0 x i8>\n"
        );
    }

    /// Zeroed global memory that the launcher finds by its name.
    pub fn global(&mut self, name: &str, bytes: u32) {
        let (words, space) = (bytes / 8, 1);
        self.text += &format!(
            "llvm.mlir.global external @{name}(dense<0> : tensor<{words}xi64>) {{addr_space = {space} : i32, alignment = 8 : i64}} : !llvm.array<{words} x i64>\n"
        );
    }

    /// Text that ends in a zero byte, in the global memory of a GPU.
    pub fn global_text(&mut self, name: &str, text: &str) {
        let bytes: String = text.bytes().chain([0]).map(|byte| format!("\\{byte:02X}")).collect();
        self.text += &format!(
            "llvm.mlir.global internal constant @{name}(\"{bytes}\") {{addr_space = 1 : i32}} : !llvm.array<{} x i8>\n",
            text.len() + 1
        );
    }

    /// A function that is defined elsewhere.
    pub fn declare(&mut self, name: &str, arguments: &[Ty], result: Ty) {
        let types: Vec<String> = arguments.iter().map(Ty::to_string).collect();
        self.text += &format!("llvm.func @{name}({}) -> {result}\n", types.join(", "));
    }

    /// A function; `body` builds it and need not end it.
    pub fn function(
        &mut self,
        name: &str,
        arguments: &[Argument],
        entry: &EntryKind,
        body: impl FnOnce(&mut Builder, &[Val]) + 's,
    ) {
        let parameter = |(i, argument): (usize, &Argument)| {
            let attributes = match argument.kind {
                ArgumentKind::Plain => "",
                ArgumentKind::Exclusive => " {llvm.noalias}",
                ArgumentKind::ReadOnly => " {llvm.noalias, llvm.readonly}",
                ArgumentKind::TensorMap => {
                    " {llvm.byval = !llvm.array<128 x i8>, llvm.align = 64 : i64, nvvm.grid_constant}"
                }
            };
            format!("%a{i}: {}{attributes}", argument.ty)
        };
        let parameters: Vec<String> = arguments.iter().enumerate().map(parameter).collect();
        let attributes = match entry {
            EntryKind::Kernel { threads, blocks, limit } => {
                let cluster = match blocks {
                    1 => String::new(),
                    blocks => format!(", nvvm.cluster_dim = array<i32: {blocks}, 1, 1>"),
                };
                let limit = match limit {
                    Some(Limit::Registers(most)) => format!(", nvvm.maxnreg = {most} : i32"),
                    Some(Limit::Blocks(fewest)) => format!(", nvvm.minctasm = {fewest} : i32"),
                    None => String::new(),
                };
                format!("attributes {{nvvm.kernel, nvvm.reqntid = array<i32: {threads}>{cluster}{limit}}}")
            }
            EntryKind::Host | EntryKind::Internal => String::new(),
        };
        let linkage = if *entry == EntryKind::Internal { "internal " } else { "" };
        self.text += &format!(
            "llvm.func {linkage}@{name}({}) {attributes} {{\n  llvm.return\n}}\n",
            parameters.join(", ")
        );
        self.bodies.push((arguments.iter().map(|argument| argument.ty).collect(), Box::new(body)));
    }

    /// Builds every body and verifies the module.
    pub fn finish(self) -> Result<BuiltModule<'s>, String> {
        let context = &self.session.context;
        let module = Module::parse(context, &self.text).ok_or_else(|| format!("skeleton:\n{}", self.text))?;
        let mut bodies = self.bodies.into_iter();
        let mut next = module.body().first_operation();
        while let Some(operation) = next {
            next = operation.next_in_block();
            if operation.name().as_string_ref().as_str() != Ok("llvm.func") {
                continue;
            }
            // A declaration has no block.
            let Some(entry) = operation.region(0).ok().and_then(|region| region.first_block()) else {
                continue;
            };
            let (types, body) = bodies.next().ok_or("more functions than bodies")?;
            // SAFETY: the skeleton ends its entry block with `llvm.return`, which the builder appends again at the end.
            unsafe {
                let terminator = mlirBlockGetTerminator(entry.to_raw());
                mlirOperationRemoveFromParent(terminator);
                mlirOperationDestroy(terminator);
            }
            let mut builder = Builder::new(context, entry.to_raw(), self.machine, self.capability);
            let arguments = builder.arguments(&types);
            body(&mut builder, &arguments);
            builder.finish();
        }
        if !module.as_operation().verify() {
            return Err(format!("the emitted MLIR does not verify:\n{}", module.as_operation()));
        }
        Ok(BuiltModule { session: self.session, module })
    }
}

/// A verified module.
pub struct BuiltModule<'s> {
    session: &'s Session,
    module: Module<'s>,
}

impl<'s> BuiltModule<'s> {
    pub fn text(&self) -> String {
        self.module.as_operation().to_string()
    }

    /// All of it, in less time than as text.
    pub fn bytecode(&self) -> Vec<u8> {
        self.module.as_operation().write_bytecode()
    }

    /// Lowers control flow to branches: after this every operation maps to LLVM IR.
    pub fn lower(mut self) -> Result<Module<'s>, String> {
        let manager = PassManager::new(&self.session.context);
        manager.enable_verifier(true);
        for pass in PASSES {
            manager.add_pass(pass());
        }
        manager.run(&mut self.module).map_err(|_| format!("MLIR's passes failed on:\n{}", self.text()))?;
        Ok(self.module)
    }
}

/// The pointer type of global memory on `machine`.
pub fn memory_pointer(machine: Machine) -> Ty {
    Ty::scalar(Elem::Ptr(match machine {
        Machine::Nvptx => Space::Global,
        Machine::Host(_) => Space::Generic,
    }))
}
