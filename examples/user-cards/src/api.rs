//! The service over HTTP.

use std::{net::SocketAddr, sync::Arc};

use anyhow::{Context, Result};
use axum::{
    Json, Router,
    extract::{DefaultBodyLimit, Path, State},
    http::StatusCode,
    response::{IntoResponse, Response},
    routing::{get, post, put},
};
use mongodb::bson::oid::ObjectId;
use pillarbox::EventId;
use serde_json::{Value, json};
use tokio::net::TcpListener;

use crate::{
    Database,
    cards::{Card, Cards},
    database,
    users::{Profile, User, Users, UsersError},
};

const BODY_BYTES_MAX: usize = 16 * 1024;

struct Service {
    users: Users,
    cards: Cards,
}

/// Serves until it is stopped. The first line on stdout is its address.
pub(crate) async fn serve(address: &Database, listen: SocketAddr) -> Result<()> {
    let database = database::open(&address.mongodb).await?;
    let service = Arc::new(Service {
        users: Users::open(&database).await?,
        cards: Cards::open(&database).await?,
    });
    let routes = Router::new()
        .route("/users", post(create).get(users))
        .route("/users/{id}", put(update))
        .route("/cards", get(cards))
        .layer(DefaultBodyLimit::max(BODY_BYTES_MAX))
        .with_state(service);
    let listener = TcpListener::bind(listen)
        .await
        .with_context(|| format!("can't listen on {listen}"))?;
    println!("http://{}", listener.local_addr()?);
    axum::serve(listener, routes).await?;
    Ok(())
}

async fn create(
    State(service): State<Arc<Service>>,
    Json(profile): Json<Profile>,
) -> Result<Response, Refusal> {
    let (user, event) = service.users.create(&profile).await?;
    Ok((StatusCode::CREATED, Json(changed(&user, event))).into_response())
}

async fn update(
    State(service): State<Arc<Service>>,
    Path(id): Path<String>,
    Json(profile): Json<Profile>,
) -> Result<Json<Value>, Refusal> {
    let id = ObjectId::parse_str(&id).map_err(|_| UsersError::NotFound)?;
    let (user, event) = service.users.update(id, &profile).await?;
    Ok(Json(changed(&user, event)))
}

async fn users(State(service): State<Arc<Service>>) -> Result<Json<Vec<Value>>, Refusal> {
    let users = service.users.list().await.map_err(UsersError::Database)?;
    Ok(Json(users.iter().map(shown).collect()))
}

async fn cards(State(service): State<Arc<Service>>) -> Result<Json<Vec<Card>>, Refusal> {
    let cards = service.cards.list().await.map_err(UsersError::Database)?;
    Ok(Json(cards))
}

fn shown(user: &User) -> Value {
    json!({ "id": user.id.to_hex(), "name": user.name, "email": user.email, "version": user.version })
}

fn changed(user: &User, event: EventId) -> Value {
    json!({ "user": shown(user), "event_id": event })
}

struct Refusal(UsersError);

impl From<UsersError> for Refusal {
    fn from(error: UsersError) -> Self {
        Self(error)
    }
}

impl IntoResponse for Refusal {
    fn into_response(self) -> Response {
        let (status, body) = match &self.0 {
            UsersError::EmailTaken { event } => (
                StatusCode::CONFLICT,
                json!({ "error": "this email address is taken: nothing was written", "event_id": event }),
            ),
            UsersError::NotFound => (StatusCode::NOT_FOUND, json!({ "error": "there is no such user" })),
            UsersError::Database(error) => {
                eprintln!("MongoDB: {error}");
                (
                    StatusCode::SERVICE_UNAVAILABLE,
                    json!({ "error": "the database is not available now" }),
                )
            }
        };
        (status, Json(body)).into_response()
    }
}
