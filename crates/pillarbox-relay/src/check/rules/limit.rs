//! Limits how long a rule may run. CEL has no endless loops, but nested loops over a large payload take long.
//!
//! Each iteration of a loop (`all`, `exists`, `map`, …) calls a function of ours that counts and looks at the clock,
//! because the crate has no limit of its own.

use std::{
    cell::Cell,
    sync::{Arc, LazyLock},
    time::{Duration, Instant},
};

use cel::{
    Env, ExecutionError,
    common::{
        ast::{CallExpr, EntryExpr, Expr, IdedExpr, operators},
        types::CelBool,
        value::CowVal,
    },
};

/// A name that no rule can contain.
pub(super) const STEP: &str = "@step";
const STEPS_MAX: u32 = 1_000_000;
const TIME_MAX: Duration = Duration::from_secs(1);

thread_local! {
    /// The iterations of the evaluation on this thread, and when it must end.
    static RUN: Cell<(u32, Option<Instant>)> = const { Cell::new((0, None)) };
}

/// Starts a new evaluation on this thread.
pub(super) fn start() {
    RUN.set((0, None));
}

/// CEL's own functions and the counter.
pub(super) fn environment() -> Arc<Env> {
    static ENVIRONMENT: LazyLock<Arc<Env>> = LazyLock::new(|| {
        let mut env = Env::stdlib();
        let added = env.add_overload(STEP, STEP, Vec::new(), step);
        debug_assert!(added.is_ok(), "the name is not in use");
        Arc::new(env)
    });
    ENVIRONMENT.clone()
}

fn step<'b, 'v>(_: Vec<CowVal<'b, 'v>>) -> Result<CowVal<'b, 'v>, ExecutionError> {
    let (steps, until) = RUN.get();
    let now = Instant::now();
    let until = until.unwrap_or(now + TIME_MAX);
    RUN.set((steps + 1, Some(until)));
    if steps >= STEPS_MAX || now > until {
        return Err(ExecutionError::function_error(STEP, "it takes too long"));
    }
    Ok(CowVal::owned(CelBool::from(true)))
}

/// Adds a call of the counter to every loop.
pub(super) fn count_steps(expression: &mut IdedExpr) {
    match &mut expression.expr {
        Expr::Call(call) => {
            call.target.iter_mut().for_each(|target| count_steps(target));
            call.args.iter_mut().for_each(count_steps);
        }
        Expr::Comprehension(comprehension) => {
            for part in [
                &mut comprehension.iter_range,
                &mut comprehension.accu_init,
                &mut comprehension.loop_cond,
                &mut comprehension.loop_step,
                &mut comprehension.result,
            ] {
                count_steps(part);
            }
            if !matches!(comprehension.loop_cond.expr, Expr::Literal(_)) {
                counted(&mut comprehension.loop_cond);
                return;
            }
            // `map` and `filter` have no condition, and are only fast without one. So the counter goes into their step.
            match &mut comprehension.loop_step.expr {
                Expr::Call(call) if call.func_name == operators::CONDITIONAL && call.args.len() == 3 => {
                    counted(&mut call.args[0]);
                }
                _ => {
                    let step = std::mem::take(&mut comprehension.loop_step);
                    let otherwise = node(Expr::Ident(comprehension.accu_var.clone()));
                    comprehension.loop_step = call(
                        operators::CONDITIONAL,
                        vec![call(STEP, Vec::new()), step, otherwise],
                    );
                }
            }
        }
        Expr::List(list) => list.elements.iter_mut().for_each(count_steps),
        Expr::Map(map) => map
            .entries
            .iter_mut()
            .for_each(|entry| count_in_entry(&mut entry.expr)),
        Expr::Struct(made) => made
            .entries
            .iter_mut()
            .for_each(|entry| count_in_entry(&mut entry.expr)),
        Expr::Select(select) => count_steps(&mut select.operand),
        Expr::Ident(_) | Expr::Literal(_) | Expr::Unspecified => {}
    }
}

fn count_in_entry(entry: &mut EntryExpr) {
    match entry {
        EntryExpr::MapEntry(entry) => {
            count_steps(&mut entry.key);
            count_steps(&mut entry.value);
        }
        EntryExpr::StructField(field) => count_steps(&mut field.value),
    }
}

/// `@step() && condition`
fn counted(condition: &mut IdedExpr) {
    let before = std::mem::take(condition);
    *condition = call(operators::LOGICAL_AND, vec![call(STEP, Vec::new()), before]);
}

fn call(name: &str, args: Vec<IdedExpr>) -> IdedExpr {
    node(Expr::Call(CallExpr {
        func_name: name.to_owned(),
        target: None,
        args,
    }))
}

fn node(expr: Expr) -> IdedExpr {
    IdedExpr { id: 0, expr }
}
