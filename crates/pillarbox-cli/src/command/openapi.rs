//! `pillarbox openapi`

use anyhow::Result;

use crate::{
    http::openapi,
    output::{Answer, Context},
};

/// Print the OpenAPI document of the HTTP API
///
/// A relay serves the same at /v1/openapi.json.
///
///   pillarbox openapi > pillarbox.openapi.json
#[derive(clap::Args)]
#[command(verbatim_doc_comment)]
pub(crate) struct Args {}

pub(crate) fn run(_: Args, context: &Context) -> Result<Answer> {
    context.print(&serde_json::to_string_pretty(&openapi::document())?)?;
    Ok(Answer::Yes)
}
