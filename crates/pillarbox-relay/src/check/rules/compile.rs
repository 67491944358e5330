//! What can be known about a rule before the first event: its errors, and the fields that it reads.

use std::collections::BTreeSet;

use cel::{
    Context, ExecutionError, ParseErrors, Program, Value,
    common::ast::{CallExpr, EntryExpr, Expr, IdedExpr, LiteralValue},
};

use super::{
    limit::{count_steps, environment},
    values::VARIABLES,
};

/// How deep loops may be nested.
const LOOPS_MAX: usize = 3;
const NODES_MAX: usize = 2_000;

/// How deep an expression may be nested. It is evaluated recursively, on a thread with 2 MiB.
const DEPTH_MAX: usize = 50;
/// For the parser, whose recursion can't be limited here.
const STACK_BYTES: usize = 64 * 1024 * 1024;

/// Compiles a rule on its own thread, because a configuration must not crash the process, neither by a panic of the
/// parser nor by its recursion. Returns the expression and the fields that it reads.
pub(super) fn apart(source: &str) -> Result<(IdedExpr, String), String> {
    let source = source.to_owned();
    let compile = move || {
        let program = Program::compile(&source).map_err(|errors| position(&errors))?;
        let mut expression = program.expression().clone();
        let reads = reads(&expression)?;
        count_steps(&mut expression);
        Ok((expression, reads))
    };
    std::thread::Builder::new()
        .stack_size(STACK_BYTES)
        .spawn(compile)
        .map_err(|error| format!("can't start a thread to compile it: {error}"))?
        .join()
        .unwrap_or_else(|_| Err("the parser crashed on it".into()))
}

/// The first error with its place.
fn position(errors: &ParseErrors) -> String {
    match errors.errors.first() {
        Some(error) => format!("line {} column {}: {}", error.pos.0, error.pos.1, error.msg),
        None => "it can't be parsed".to_owned(),
    }
}

/// The fields of the event that it reads, such as `payload.stores_involved`. An unknown field or function is an error,
/// because every event would fail.
fn reads(expression: &IdedExpr) -> Result<String, String> {
    let mut walk = Walk::default();
    walk.expression(expression)?;
    if let Some((name, _)) = walk.calls.iter().find(|(name, member)| !exists(name, *member)) {
        return Err(format!("there is no function `{name}`"));
    }
    let reads: Vec<String> = walk.reads.into_iter().collect();
    Ok(if reads.is_empty() {
        "nothing of the event".to_owned()
    } else {
        reads.join(", ")
    })
}

#[derive(Default)]
struct Walk {
    reads: BTreeSet<String>,
    /// Functions by name, and whether they are called on a value.
    calls: BTreeSet<(String, bool)>,
    /// Variables of the enclosing loops.
    own: Vec<String>,
    loops: usize,
    nodes: usize,
    depth: usize,
}

impl Walk {
    fn expression(&mut self, expression: &IdedExpr) -> Result<(), String> {
        self.depth += 1;
        if self.depth > DEPTH_MAX {
            return Err(format!("it is nested deeper than {DEPTH_MAX} levels"));
        }
        self.part(expression)?;
        self.depth -= 1;
        Ok(())
    }

    fn part(&mut self, expression: &IdedExpr) -> Result<(), String> {
        self.nodes += 1;
        if self.nodes > NODES_MAX {
            return Err(format!("it has more than {NODES_MAX} parts"));
        }
        if let Some(path) = path(expression, DEPTH_MAX)? {
            return self.read(&path);
        }
        match &expression.expr {
            Expr::Call(call) => {
                self.calls.insert((call.func_name.clone(), call.target.is_some()));
                let mut parts = call.target.iter().map(|target| &**target).chain(&call.args);
                parts.try_for_each(|part| self.expression(part))
            }
            Expr::Comprehension(comprehension) => {
                self.expression(&comprehension.iter_range)?;
                self.expression(&comprehension.accu_init)?;
                self.loops += 1;
                if self.loops > LOOPS_MAX {
                    return Err(format!(
                        "it has more than {LOOPS_MAX} nested loops (all, exists, map, …)"
                    ));
                }
                let before = self.own.len();
                self.own.push(comprehension.accu_var.clone());
                self.own.push(comprehension.iter_var.clone());
                self.own.extend(comprehension.iter_var2.clone());
                for part in [
                    &comprehension.loop_cond,
                    &comprehension.loop_step,
                    &comprehension.result,
                ] {
                    self.expression(part)?;
                }
                self.own.truncate(before);
                self.loops -= 1;
                Ok(())
            }
            Expr::List(list) => list.elements.iter().try_for_each(|part| self.expression(part)),
            Expr::Map(map) => map.entries.iter().try_for_each(|entry| self.entry(&entry.expr)),
            Expr::Struct(_) => Err("it creates a message, which is not supported".into()),
            Expr::Select(select) => self.expression(&select.operand),
            Expr::Ident(_) | Expr::Literal(_) | Expr::Unspecified => Ok(()),
        }
    }

    fn entry(&mut self, entry: &EntryExpr) -> Result<(), String> {
        match entry {
            EntryExpr::MapEntry(entry) => {
                self.expression(&entry.key)?;
                self.expression(&entry.value)
            }
            EntryExpr::StructField(field) => self.expression(&field.value),
        }
    }

    fn read(&mut self, path: &str) -> Result<(), String> {
        let root = path.split('.').next().unwrap_or(path);
        if self.own.iter().any(|own| own == root) || TYPES.contains(&root) {
            return Ok(());
        }
        if !VARIABLES.contains(&root) {
            return Err(format!(
                "there is no `{root}`; a rule can use {}",
                VARIABLES.join(", ")
            ));
        }
        self.reads.insert(path.to_owned());
        Ok(())
    }
}

/// Names of types, as in `type(payload.n) == int`.
const TYPES: &[&str] = &[
    "bool",
    "bytes",
    "double",
    "int",
    "list",
    "map",
    "null_type",
    "string",
    "type",
    "uint",
    "google",
];

/// Calls the function without arguments. A function that exists complains about that.
fn exists(name: &str, member: bool) -> bool {
    // Names of operators begin with other characters.
    if !name.starts_with(|first: char| first.is_ascii_alphabetic()) {
        return true;
    }
    let null = || IdedExpr {
        id: 0,
        expr: Expr::Literal(LiteralValue::Null),
    };
    let call = IdedExpr {
        id: 0,
        expr: Expr::Call(CallExpr {
            func_name: name.to_owned(),
            target: member.then(|| Box::new(null())),
            args: Vec::new(),
        }),
    };
    let context = Context::with_env(environment());
    !matches!(
        Value::resolve_val(&call, &context),
        Err(ExecutionError::UndeclaredReference(_))
    )
}

/// `a.b.c`: a name with selections.
fn path(expression: &IdedExpr, depth: usize) -> Result<Option<String>, String> {
    match &expression.expr {
        Expr::Ident(name) => Ok(Some(name.clone())),
        Expr::Select(_) if depth == 0 => Err(format!("it selects deeper than {DEPTH_MAX} levels")),
        Expr::Select(select) => {
            let operand = path(&select.operand, depth - 1)?;
            Ok(operand.map(|operand| format!("{operand}.{}", select.field)))
        }
        _ => Ok(None),
    }
}
