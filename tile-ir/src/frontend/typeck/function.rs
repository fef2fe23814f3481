//! Calls of functions and closures are inlined: each call checks the body again with its arguments, so that one function
//! serves every element type and shape.

use std::collections::HashMap;
use std::rc::Rc;

use super::scope::{ItemScope, Variable};
use super::{Call, CalleeId, Check, ConstValue, Item, MAX_DEPTH, Operand, Variant, WrittenCall};
use crate::frontend::syntax::{BlockExpr, Closure, FnItem, FunctionParam, GenericParam, Kernel, ValueType};
use crate::support::diagnostic::{Diagnostic, Loc, count};
use crate::support::dtype::DType;

/// How many calls may nest.
const MAX_CALLS: usize = 64;

/// How many calls a kernel may have: each is a copy of the body.
const MAX_INLINED: u32 = 1 << 14;

/// A function that an expression evaluates to.
#[derive(Clone, Debug)]
pub enum Callee {
    /// A function, and the items in its scope.
    Declared {
        function: Rc<FnItem>,
        item_scope: Rc<ItemScope>,
    },
    Closure {
        closure: Rc<Closure>,
        environment: Rc<Environment>,
    },
    /// A function of `tl::`.
    Language(String),
}

/// The scope that a closure captures.
#[derive(Debug)]
pub struct Environment {
    variables: HashMap<String, Variable>,
    item_scope: Rc<ItemScope>,
    types: Vec<(String, Option<DType>)>,
    /// The depth of the call stack there.
    frames: usize,
    site: Option<Loc>,
}

/// A kernel or function that is being checked.
#[derive(Debug)]
pub(super) struct Frame {
    pub(super) name: String,
    /// Its type parameters; `None` for one whose type was not declared or found, which was reported.
    types: Vec<(String, Option<DType>)>,
    function: Option<Rc<FnItem>>,
    /// The variables around a nested function, which are not in its scope.
    outer_variables: Vec<String>,
}

impl Frame {
    pub fn kernel(kernel: &Kernel, variant: &Variant) -> Frame {
        let declared =
            |name: &str| variant.types.iter().find(|(own, _)| own == name).map(|(_, dtype)| *dtype);
        let types = kernel.generics.iter().filter_map(|generic| match generic {
            GenericParam::Type { name, .. } => Some((name.to_string(), declared(&name.to_string()))),
            GenericParam::Const { .. } => None,
        });
        Frame {
            name: kernel.name.to_string(),
            types: types.collect(),
            function: None,
            outer_variables: vec![],
        }
    }

    /// Whether this is a variable around a nested function.
    pub fn is_outer_variable(&self, name: &str) -> bool {
        self.outer_variables.iter().any(|own| own == name)
    }

    /// A function that no kernel calls; its types are unknown.
    pub fn uncalled(function: &Rc<FnItem>) -> Frame {
        let types = function.generics.iter().filter_map(|generic| match generic {
            GenericParam::Type { name, .. } => Some((name.to_string(), None)),
            GenericParam::Const { .. } => None,
        });
        let name = function.name.to_string();
        Frame { name, types: types.collect(), function: Some(function.clone()), outer_variables: vec![] }
    }

    /// Whether a value of type `dtype` has that type in all variants and calls: no type parameter stands for it.
    pub fn fixes_type(&self, dtype: DType) -> bool {
        let mut params = self.function.iter().flat_map(|function| &function.params);
        self.types.iter().all(|(_, own)| *own != Some(dtype)) && params.all(|param| is_fixed(&param.ty))
    }

    /// Whether a macro has put parts of the function in place.
    pub fn is_generated(&self) -> bool {
        self.function.as_ref().is_some_and(|function| function.source.is_generated)
    }

    pub fn is_function(&self) -> bool {
        self.function.is_some()
    }

    /// The type of a type parameter; the inner `None` where it was reported as unknown.
    pub fn type_param(&self, name: &str) -> Option<Option<DType>> {
        self.types.iter().find(|(own, _)| own == name).map(|(_, dtype)| *dtype)
    }
}

/// A call to be inlined: its body and its scope.
struct Inlined<'f> {
    frame: Frame,
    params: &'f [FunctionParam],
    result: Option<&'f ValueType>,
    body: &'f BlockExpr,
    item_scope: Rc<ItemScope>,
    /// Variables besides the parameters: constants of the call, or captures.
    variables: HashMap<String, Variable>,
    /// The call to report on in the place of its own text.
    site: Option<Loc>,
    /// A closure without a declared result returns what its body does.
    closure: bool,
}

impl Check<'_> {
    /// A closure as a value: it captures copies of the variables around it.
    pub(super) fn closure(&mut self, closure: &Rc<Closure>, loc: Loc) -> Operand {
        let environment = Environment {
            variables: self.scopes.visible(),
            item_scope: self.item_scope.clone(),
            types: self.frame().types.clone(),
            frames: self.frames.len(),
            site: self.site,
        };
        let callee = Callee::Closure { closure: closure.clone(), environment: environment.into() };
        self.function(callee, loc)
    }

    /// A function as a value.
    pub(super) fn function(&mut self, callee: Callee, loc: Loc) -> Operand {
        let id = CalleeId(self.callees.len() as u32);
        self.callees.push(callee);
        Operand::new(Item::Function(id), loc)
    }

    /// The function that a value is.
    pub(super) fn callee(&self, id: CalleeId) -> &Callee {
        &self.callees[id.0 as usize]
    }

    /// The function that a called path names: `Some(None)` for a mistake that was reported.
    pub(super) fn called_function(&mut self, path: &[proc_macro2::Ident]) -> Option<Option<Callee>> {
        let known = match path {
            [name] => self.scopes.is_bound(&name.to_string()),
            _ => false,
        };
        let operand = if known { self.path(path, Loc::of(&path[0])) } else { self.named_item(path)? };
        match operand.item {
            Item::Function(id) => Some(Some(self.callee(id).clone())),
            Item::Failed => Some(None),
            _ => {
                let found = self.describe(&operand);
                let name = &path[path.len() - 1];
                self.error(operand.loc, format!("`{name}` is {found}, which cannot be called"));
                Some(None)
            }
        }
    }

    /// Calls a function. The result has the span of its expression in the body.
    pub(super) fn invoke(&mut self, callee: &Callee, written: WrittenCall) -> Operand {
        match callee {
            Callee::Language(name) => {
                let what = format!("`tl::{name}`");
                let WrittenCall { call, generics } = written;
                self.language(WrittenCall { call: Call { name: name.clone(), what, ..call }, generics })
            }
            Callee::Declared { function, item_scope } => {
                let before = self.errors.len();
                let result = self.declared(function, item_scope, &written);
                if item_scope.is_imported() {
                    let name = &function.name;
                    self.errors
                        .annotate(before, &format!("`{name}` is declared in {}", Loc::of(name).place()));
                }
                result
            }
            Callee::Closure { closure, environment } => {
                let call = written.call;
                if self.report_closure_arity(closure, environment, &call) {
                    return Operand::failed(call.loc);
                }
                let frame = Frame {
                    name: "a closure".into(),
                    types: environment.types.clone(),
                    function: None,
                    outer_variables: vec![],
                };
                let inlined = Inlined {
                    frame,
                    params: &closure.params,
                    result: closure.result.as_ref(),
                    body: &closure.body,
                    item_scope: environment.item_scope.clone(),
                    variables: environment.variables.clone(),
                    site: environment.site,
                    closure: true,
                };
                self.inline(inlined, &call)
            }
        }
    }

    fn declared(
        &mut self,
        function: &Rc<FnItem>,
        item_scope: &Rc<ItemScope>,
        written: &WrittenCall,
    ) -> Operand {
        let call = &written.call;
        if self.report_recursion(function, call) || !self.check_arity(&function.params, call) {
            return Operand::failed(call.loc);
        }
        let Some((types, consts)) = self.bind_generics(function, written) else {
            return Operand::failed(call.loc);
        };
        let mut variables = HashMap::new();
        for (name, value) in consts {
            let operand = Operand::new(Item::Literal(value.literal()), call.name_loc);
            let assigned = Some(operand.loc);
            variables.insert(name, Variable { operand: Some(operand), mutable: false, assigned });
        }
        let mut types = types;
        let of_library = self.library.as_ref().is_some_and(|library| Rc::ptr_eq(library, item_scope));
        if let (true, Some(&(_, Some(dtype)))) = (of_library, types.first()) {
            let wide = if dtype == DType::F64 { DType::F64 } else { DType::F32 };
            types.push(("Wide".into(), Some(wide)));
            for (name, value) in Check::library_names(dtype) {
                let operand = Some(Operand::new(Item::Literal(ConstValue::Bool(value).literal()), call.loc));
                variables.insert(name.into(), Variable { operand, mutable: false, assigned: Some(call.loc) });
            }
        }
        let name = function.name.to_string();
        // A nested function sees the items of its block, and no variables.
        let outer_variables = match item_scope.is_nested() {
            true => self.scopes.names().map(str::to_string).collect(),
            false => vec![],
        };
        let inlined = Inlined {
            frame: Frame { name, types, function: Some(function.clone()), outer_variables },
            params: &function.params,
            result: function.result.as_ref(),
            body: &function.body,
            item_scope: item_scope.clone(),
            variables,
            site: match item_scope.is_imported() {
                true => self.site.or(Some(call.loc)),
                false => self.site.filter(|_| of_library),
            },
            closure: false,
        };
        self.inline(inlined, call)
    }

    /// Inlines the body of a call.
    fn inline(&mut self, inlined: Inlined, call: &Call) -> Operand {
        let silent = call.args.iter().any(|arg| matches!(arg.item, Item::Failed));
        if silent || !self.check_arity(inlined.params, call) || self.report_excess(call) {
            return Operand::failed(call.loc);
        }
        let name = inlined.frame.name.clone();
        let imported = inlined.frame.function.clone().filter(|_| inlined.item_scope.is_imported());
        let outer_site = std::mem::replace(&mut self.site, inlined.site);
        self.frames.push(inlined.frame);
        let outer_items = std::mem::replace(&mut self.item_scope, inlined.item_scope);
        let outer_scopes = self.scopes.isolate();
        let outer_ended = std::mem::take(&mut self.ended);
        let mut value = Operand::failed(call.loc);
        if let Some(args) = self.unify_args(inlined.params, call) {
            let before = self.errors.len();
            for (name, variable) in inlined.variables {
                self.scopes.capture(&name, variable);
            }
            self.scopes.enter();
            for (param, arg) in inlined.params.iter().zip(args) {
                self.bind(&param.pattern, arg);
            }
            value = self.block(inlined.body);
            self.changed_self = self.scopes.find("self").and_then(|own| self.scopes.get(own).operand.clone());
            value = match inlined.result {
                Some(ty) => self.result(ty, value, inlined.body.loc, &name),
                None if inlined.closure => value,
                None => self.no_result(value, &name),
            };
            if let (Some(site), Some(function)) = (self.site, imported) {
                let text = Loc::of(&function.name).to(function.body.loc);
                self.errors.relocate_from(before, text, site, &name);
            } else if let (Some(site), false) = (self.site, inlined.closure) {
                self.errors.relocate(before, site);
            } else if !inlined.closure {
                let note = format!("in the call of {} on line {}", display_name(&name), call.name_loc.line());
                self.errors.annotate(before, &note);
            }
        }
        self.scopes.resume(outer_scopes);
        self.ended = outer_ended;
        self.item_scope = outer_items;
        self.frames.pop();
        self.site = outer_site;
        value
    }

    fn result(&mut self, ty: &ValueType, value: Operand, end: Loc, name: &str) -> Operand {
        if matches!(value.item, Item::Unit) {
            let text = format!("{} gives a value, but its body ends without one", display_name(name));
            return self.error_help(
                Loc::from(end.end),
                text,
                "the value is the last expression, without a semicolon behind it",
            );
        }
        let loc = value.loc;
        self.unify(ty, &value, &format!("what {} gives", display_name(name)))
            .unwrap_or_else(|| Operand::failed(loc))
    }

    fn no_result(&mut self, value: Operand, name: &str) -> Operand {
        if matches!(value.item, Item::Unit | Item::Failed) {
            return value;
        }
        let found = self.describe(&value);
        let text = format!("{} gives nothing, but its body ends with {found}", display_name(name));
        self.error_help(value.loc, text, "say what it gives: `-> Tile<f32>`")
    }

    // ---- limits

    fn check_arity(&mut self, params: &[FunctionParam], call: &Call) -> bool {
        if params.len() == call.args.len() {
            return true;
        }
        let surplus = call.args.get(params.len()).zip(call.args.last());
        let loc = surplus.map_or(call.name_loc, |(first, last)| first.loc.to(last.loc));
        let wanted = count(params.len(), "argument");
        self.error(loc, format!("{} takes {wanted}, found {}", call.what, call.args.len()));
        false
    }

    /// Reports a closure argument that the callee calls with another number of arguments. The caller can see the closure
    /// only, so the error is on it.
    fn report_closure_arity(&mut self, closure: &Closure, environment: &Environment, call: &Call) -> bool {
        let (wanted, found) = (call.args.len(), closure.params.len());
        if wanted == found || environment.frames >= self.frames.len() {
            return false;
        }
        let caller = display_name(&self.frame().name);
        let text = format!("this closure takes {}, {caller} gives it {wanted}", count(found, "argument"));
        self.error(closure.loc, text);
        true
    }

    fn report_recursion(&mut self, function: &Rc<FnItem>, call: &Call) -> bool {
        let same = |frame: &Frame| frame.function.as_ref().is_some_and(|own| Rc::ptr_eq(own, function));
        let Some(first) = self.frames.iter().position(same) else { return false };
        // Through a closure a function may be called again without recursion: the depth limit decides then.
        if self.frames[first..].iter().any(|frame| frame.function.is_none()) {
            return false;
        }
        let chain: Vec<String> = self.frames[first + 1..]
            .iter()
            .map(|frame| display_name(&frame.name))
            .chain([call.what.clone()])
            .collect();
        self.report(Diagnostic {
            loc: call.name_loc,
            message: format!("{} calls itself", call.what),
            help: Some("write a loop: `while condition { .. }`".into()),
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

/// Whether a type names every element type in it.
fn is_fixed(ty: &ValueType) -> bool {
    match ty {
        ValueType::Tile { elem, .. } => elem.is_some(),
        ValueType::Tuple { parts, .. } => parts.iter().all(is_fixed),
        ValueType::Optional(inner) => is_fixed(inner),
        ValueType::Function(_) | ValueType::Any => false,
        ValueType::Scalar(_) | ValueType::Constant(_) | ValueType::Memory { .. } | ValueType::View(_) => true,
    }
}

/// The name of a function in messages; a closure has none.
fn display_name(name: &str) -> String {
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
