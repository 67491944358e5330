//! x
use crate::output::{Answer, Context};
/// Demo
#[derive(clap::Args)]
pub(crate) struct Args {}
pub(crate) async fn run(_: Args, _: &Context) -> anyhow::Result<Answer> {
    anyhow::bail!("x")
}
