//! MongoDB with user accounts: exactly the documented rights are enough.

use mongodb::{
    Client,
    bson::{Bson, Document, doc},
};
use pillarbox_testkit::servers::{Mongo, MongoOptions};

use super::*;

/// A password that must be percent-encoded in an address.
const PASSWORD: &str = "p@ss:w/rd?";
const PASSWORD_IN_ADDRESS: &str = "p%40ss%3Aw%2Frd%3F";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_account_of_mongodb_needs_the_roles_that_are_documented() {
    let options = MongoOptions {
        accounts: true,
        ..MongoOptions::default()
    };
    let Some(mongo) = Mongo::start_with(options).await else {
        return;
    };
    let client = Client::with_uri_str(mongo.url_of("admin")).await.unwrap();
    for (name, roles) in [
        ("reader", &["read"][..]),
        ("app", &["readWrite"]),
        ("mover", &["readWrite", "dbAdmin"]),
    ] {
        let roles: Vec<Bson> = roles
            .iter()
            .map(|role| doc! { "role": role, "db": "shop" }.into())
            .collect();
        let account = doc! { "createUser": name, "pwd": PASSWORD, "roles": roles };
        client.database("admin").run_command(account).await.unwrap();
    }
    let folder = tempfile::tempdir().unwrap();
    let config = "outbox:
  sinks: { out: { url: 'stdout:' } }
  validation:
    enable_business_rule_validation: true
    rules: [{ name: small, event_type: '*', rule: size(payload) < 9 }]\n";
    std::fs::write(folder.path().join("pillarbox.yaml"), config).unwrap();
    let url = |name: &str| mongo.url_as(name, PASSWORD_IN_ADDRESS, "shop");
    let as_ = |name: &str, args: &[&str]| {
        let mut command = pillarbox(folder.path());
        let command = command
            .args(args)
            .env("PILLARBOX_OUTBOX__DATABASE__URL", url(name));
        let output = command.output().unwrap();
        let said = stdout(&output) + &stderr(&output);
        assert!(
            !said.contains(PASSWORD) && !said.contains(PASSWORD_IN_ADDRESS),
            "{said}"
        );
        (code(&output), said)
    };
    for (name, words) in [
        ("nobody", "refuses this user or password"),
        ("reader", "it needs the role readWrite"),
    ] {
        let (code, said) = as_(name, &["migrate"]);
        assert!(code == 2 && said.contains(words), "{name}: {said}");
    }
    let done = |name: &str, args: &[&str]| {
        let (code, said) = as_(name, args);
        assert_eq!(code, 0, "{name} {args:?}: {said}");
        said
    };
    done("app", &["migrate"]);
    let (code, said) = as_("reader", &["run", "--no-http"]);
    assert!(
        code == 2 && said.contains("it needs the role readWrite"),
        "{said}"
    );

    // Everything except an upgrade.
    let event = "enqueue --topic t.x --type Paid --aggregate-type order --aggregate-id o-1 --payload {}";
    let event: Vec<&str> = event.split(' ').collect();
    done("app", &event);
    done("app", &["check", "--pending"]);
    let mut relay = pillarbox(folder.path());
    relay.env("PILLARBOX_OUTBOX__DATABASE__URL", url("app"));
    let relay = Running::spawn(relay.args(["run", "--no-http"]));
    until_blocking("it is delivered", || {
        done("app", &["status", "--json"]).contains(r#""pending":0"#)
    });
    let (ended, out) = relay.stop();
    assert_eq!(ended, 0);
    assert!(out.contains(r#""event_type":"Paid""#), "{out}");
    done("app", &["dead", "list"]);
    done("app", &["catalog"]);

    let meta = client
        .database("shop")
        .collection::<Document>("outbox_events_meta");
    let older = doc! { "$set": { "value": 3 } };
    meta.update_one(doc! {}, older).await.unwrap();
    let (code, said) = as_("app", &["migrate"]);
    assert!(
        code == 2 && said.contains("dbAdmin to migrate one that is older"),
        "{said}"
    );
    let said = done("mover", &["migrate"]);
    assert!(said.contains("was at version 3"), "{said}");
}
