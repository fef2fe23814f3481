//! Calls of functions and closures: the body is checked anew at each call with the arguments in the place of the
//! parameters, so that one function serves every element type and shape.

use std::collections::HashMap;
use std::rc::Rc;

use super::items::Surroundings;
use super::scope::Variable;
use super::{Call, Check, ConstValue, Item, Operand, Variant};
use crate::frontend::syntax::{BlockExpr, Closure, FnItem, FunctionParam, GenericParam, Kernel, ValueType};
use crate::support::diagnostic::{Diagnostic, Loc, count};
use crate::support::dtype::DType;

/// How many expressions may stand around a call, those of its callers included: what checks them recurses.
pub(super) const MAX_DEPTH: u32 = 1000;

/// How many calls may lead to one another.
const MAX_CALLS: usize = 64;

/// How often a kernel may call functions: each call is a copy of the body.
const MAX_INLINED: u32 = 1 << 14;

/// What can be called.
#[derive(Clone, Debug)]
pub enum Callee {
    /// A function, and the items that its names may mean.
    Declared {
        function: Rc<FnItem>,
        surroundings: Rc<Surroundings>,
    },
    Closure {
        closure: Rc<Closure>,
        environment: Rc<Environment>,
    },
    /// A function of `tl::`.
    Language(String),
}

/// What a closure has of the place where it stands.
#[derive(Debug)]
pub struct Environment {
    variables: HashMap<String, Variable>,
    surroundings: Rc<Surroundings>,
    types: Vec<(String, Option<DType>)>,
    /// How many frames stood around it.
    frames: usize,
}

/// A kernel or function that is being checked.
#[derive(Debug)]
pub(super) struct Frame {
    name: String,
    /// Its type parameters; `None` for one whose type was not declared or found, which was reported.
    types: Vec<(String, Option<DType>)>,
    function: Option<Rc<FnItem>>,
    /// The variables around a nested function, which it does not see.
    around: Vec<String>,
}

impl Frame {
    pub fn kernel(kernel: &Kernel, variant: &Variant) -> Frame {
        let declared =
            |name: &str| variant.types.iter().find(|(own, _)| own == name).map(|(_, dtype)| *dtype);
        let types = kernel.generics.iter().filter_map(|generic| match generic {
            GenericParam::Type { name, .. } => Some((name.to_string(), declared(&name.to_string()))),
            GenericParam::Const { .. } => None,
        });
        Frame { name: kernel.name.to_string(), types: types.collect(), function: None, around: vec![] }
    }

    /// Whether a nested function stands where this variable is.
    pub fn sees_around(&self, name: &str) -> bool {
        self.around.iter().any(|own| own == name)
    }

    /// A function that is checked by itself, of whose types nothing is known.
    pub fn alone(function: &Rc<FnItem>) -> Frame {
        let types = function.generics.iter().filter_map(|generic| match generic {
            GenericParam::Type { name, .. } => Some((name.to_string(), None)),
            GenericParam::Const { .. } => None,
        });
        let name = function.name.to_string();
        Frame { name, types: types.collect(), function: Some(function.clone()), around: vec![] }
    }

    pub fn is_function(&self) -> bool {
        self.function.is_some()
    }

    /// The type of a type parameter; the inner `None` where it was reported as unknown.
    pub fn type_param(&self, name: &str) -> Option<Option<DType>> {
        self.types.iter().find(|(own, _)| own == name).map(|(_, dtype)| *dtype)
    }
}

/// A call that is about to be put in place: what its body is and what its names mean.
struct Inlined<'f> {
    frame: Frame,
    params: &'f [FunctionParam],
    result: Option<&'f ValueType>,
    body: &'f BlockExpr,
    surroundings: Rc<Surroundings>,
    /// Names that are known besides the parameters.
    variables: HashMap<String, Variable>,
    /// A closure without a declared result gives what its body does.
    closure: bool,
}

impl Check<'_> {
    /// A closure as a value: it has its own copies of the variables around it.
    pub(super) fn closure(&mut self, closure: &Rc<Closure>, loc: Loc) -> Operand {
        let environment = Environment {
            variables: self.scopes.visible(),
            surroundings: self.surroundings.clone(),
            types: self.frame().types.clone(),
            frames: self.frames.len(),
        };
        let callee = Callee::Closure { closure: closure.clone(), environment: environment.into() };
        self.wrap(Item::Function(callee), loc)
    }

    /// What a path that is called means, if it means a function: `Some(None)` when it is a mistake that was reported.
    pub(super) fn callee(&mut self, path: &[proc_macro2::Ident]) -> Option<Option<Callee>> {
        let known = match path {
            [name] => self.scopes.is_bound(&name.to_string()),
            _ => false,
        };
        let operand = if known { self.path(path, Loc::of(&path[0])) } else { self.named_item(path)? };
        match operand.item {
            Item::Function(callee) => Some(Some(callee)),
            Item::Failed => Some(None),
            _ => {
                let found = self.describe(&operand);
                let name = &path[path.len() - 1];
                self.error(operand.loc, format!("`{name}` is {found}, which cannot be called"));
                Some(None)
            }
        }
    }

    /// Calls what an operand was found to be. What it gives stands where the body says it.
    pub(super) fn invoke(&mut self, callee: &Callee, call: Call) -> Operand {
        match callee {
            Callee::Language(name) => {
                let what = format!("`tl::{name}`");
                self.language(Call { name: name.clone(), what, ..call })
            }
            Callee::Declared { function, surroundings } => self.declared(function, surroundings, &call),
            Callee::Closure { closure, environment } => {
                if self.report_handed_closure(closure, environment, &call) {
                    return self.failed(call.loc);
                }
                let frame = Frame {
                    name: "a closure".into(),
                    types: environment.types.clone(),
                    function: None,
                    around: vec![],
                };
                let inlined = Inlined {
                    frame,
                    params: &closure.params,
                    result: closure.result.as_ref(),
                    body: &closure.body,
                    surroundings: environment.surroundings.clone(),
                    variables: environment.variables.clone(),
                    closure: true,
                };
                self.inline(inlined, &call)
            }
        }
    }

    fn declared(&mut self, function: &Rc<FnItem>, surroundings: &Rc<Surroundings>, call: &Call) -> Operand {
        if self.report_recursion(function, call) || !self.counted(&function.params, call) {
            return self.failed(call.loc);
        }
        let Some((types, consts)) = self.bind_generics(function, call) else {
            return self.failed(call.loc);
        };
        let mut variables = HashMap::new();
        for (name, value) in consts {
            let operand = self.wrap(Item::Literal(value.literal()), call.name_loc);
            let assigned = Some(operand.loc);
            variables.insert(name, Variable { operand: Some(operand), mutable: false, assigned });
        }
        let mut types = types;
        let of_library = self.library.as_ref().is_some_and(|library| Rc::ptr_eq(library, surroundings));
        if let (true, Some(&(_, Some(dtype)))) = (of_library, types.first()) {
            let wide = if dtype == DType::F64 { DType::F64 } else { DType::F32 };
            types.push(("Wide".into(), Some(wide)));
            for (name, value) in Check::library_names(dtype) {
                let operand = Some(self.wrap(Item::Literal(ConstValue::Bool(value).literal()), call.loc));
                variables.insert(name.into(), Variable { operand, mutable: false, assigned: Some(call.loc) });
            }
        }
        let name = function.name.to_string();
        // A nested function has the block's items around it, and those of nothing else.
        let around = match surroundings.is_nested() {
            true => self.scopes.names().map(str::to_string).collect(),
            false => vec![],
        };
        let inlined = Inlined {
            frame: Frame { name, types, function: Some(function.clone()), around },
            params: &function.params,
            result: function.result.as_ref(),
            body: &function.body,
            surroundings: surroundings.clone(),
            variables,
            closure: false,
        };
        self.inline(inlined, call)
    }

    /// Puts a body in the place of a call.
    fn inline(&mut self, inlined: Inlined, call: &Call) -> Operand {
        let silent = call.args.iter().any(|arg| matches!(arg.item, Item::Failed));
        if silent || !self.counted(inlined.params, call) || self.report_excess(call) {
            return self.failed(call.loc);
        }
        let name = inlined.frame.name.clone();
        self.frames.push(inlined.frame);
        let outer_items = std::mem::replace(&mut self.surroundings, inlined.surroundings);
        let outer_scopes = self.scopes.isolate();
        let outer_ended = std::mem::take(&mut self.ended);
        let mut value = self.failed(call.loc);
        if let Some(args) = self.conform_all(inlined.params, call) {
            let before = self.errors.len();
            for (name, variable) in inlined.variables {
                self.scopes.capture(&name, variable);
            }
            self.scopes.enter();
            for (param, arg) in inlined.params.iter().zip(args) {
                self.bind(&param.pattern, arg);
            }
            value = self.block(inlined.body);
            value = match inlined.result {
                Some(ty) => self.result(ty, value, inlined.body.loc, &name),
                None if inlined.closure => value,
                None => self.no_result(value, &name),
            };
            if let Some(site) = self.site {
                self.errors.relocate(before, site);
            } else if !inlined.closure {
                let note = format!("in the call of {} on line {}", quoted(&name), call.name_loc.line());
                self.errors.annotate(before, &note);
            }
        }
        self.scopes.resume(outer_scopes);
        self.ended = outer_ended;
        self.surroundings = outer_items;
        self.frames.pop();
        value
    }

    fn result(&mut self, ty: &ValueType, value: Operand, end: Loc, name: &str) -> Operand {
        if matches!(value.item, Item::Unit) {
            let text = format!("{} gives a value, but its body ends without one", quoted(name));
            return self.error(Loc::from(end.end), text);
        }
        let loc = value.loc;
        self.conform(ty, &value, &format!("what {} gives", quoted(name))).unwrap_or_else(|| self.failed(loc))
    }

    fn no_result(&mut self, value: Operand, name: &str) -> Operand {
        if matches!(value.item, Item::Unit | Item::Failed) {
            return value;
        }
        let found = self.describe(&value);
        let text = format!("{} gives nothing, but its body ends with {found}", quoted(name));
        self.error_help(value.loc, text, "say what it gives: `-> Tile<f32>`")
    }

    // ---- limits

    fn counted(&mut self, params: &[FunctionParam], call: &Call) -> bool {
        if params.len() == call.args.len() {
            return true;
        }
        let surplus = call.args.get(params.len()).zip(call.args.last());
        let loc = surplus.map_or(call.name_loc, |(first, last)| first.loc.to(last.loc));
        let wanted = count(params.len(), "argument");
        self.error(loc, format!("{} takes {wanted}, found {}", call.what, call.args.len()));
        false
    }

    /// Whether a closure that a function was given does not take what the function gives it. The closure is what the
    /// caller can see.
    fn report_handed_closure(&mut self, closure: &Closure, environment: &Environment, call: &Call) -> bool {
        let (wanted, found) = (call.args.len(), closure.params.len());
        if wanted == found || environment.frames >= self.frames.len() {
            return false;
        }
        let caller = quoted(&self.frame().name);
        let text = format!("this closure takes {}, {caller} gives it {wanted}", count(found, "argument"));
        self.error(closure.loc, text);
        true
    }

    fn report_recursion(&mut self, function: &Rc<FnItem>, call: &Call) -> bool {
        let same = |frame: &Frame| frame.function.as_ref().is_some_and(|own| Rc::ptr_eq(own, function));
        let Some(first) = self.frames.iter().position(same) else { return false };
        // Through a closure a function may be called again, for a last time: depth decides then.
        if self.frames[first..].iter().any(|frame| frame.function.is_none()) {
            return false;
        }
        let chain: Vec<String> = self.frames[first + 1..]
            .iter()
            .map(|frame| quoted(&frame.name))
            .chain([call.what.clone()])
            .collect();
        self.report(Diagnostic {
            loc: call.name_loc,
            message: format!("{} calls itself", call.what),
            help: None,
            note: Some(match chain.len() {
                1 => "each call is a copy of the body, so that it would never end".into(),
                _ => format!("{} calls {}", call.what, chain.join(", which calls ")),
            }),
        });
        true
    }

    fn report_excess(&mut self, call: &Call) -> bool {
        if self.depth > MAX_DEPTH || self.frames.len() > MAX_CALLS {
            self.error(call.name_loc, format!("calls nest too deeply here: at most {MAX_CALLS}"));
            return true;
        }
        self.inlined += 1;
        if self.inlined > MAX_INLINED {
            let text = format!("this kernel calls functions more than {MAX_INLINED} times");
            self.error_help(call.name_loc, text, "each call is a copy of the body: use a loop");
            return true;
        }
        false
    }
}

/// A name as messages show it; a closure has none.
fn quoted(name: &str) -> String {
    if name.contains(' ') { name.to_string() } else { format!("`{name}`") }
}

impl ConstValue {
    pub(super) fn literal(self) -> super::Literal {
        use super::{Literal, LiteralValue};
        Literal::named(match self {
            ConstValue::Int(value) => LiteralValue::Number(crate::ops::ConstantValue::Int(value)),
            ConstValue::Bool(value) => LiteralValue::Bool(value),
        })
    }
}
