/** Runs the service with Pillarbox and prints what happens. With --once it compares what was committed with what arrived,
 * and its exit code is the verdict. */

import { type ChildProcess, execFileSync, spawn } from "node:child_process";
import { randomUUID } from "node:crypto";
import { createInterface } from "node:readline";
import { jetstream, type JsMsg } from "@nats-io/jetstream";
import { connect } from "@nats-io/transport-node";
import { Client } from "pg";

const FOLDER = `${__dirname}/..`;
const PATIENCE_MS = 30_000;
const TRACE = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";

const named = process.argv.indexOf("--pillarbox");
const pillarbox = (named > 0 ? process.argv[named + 1] : undefined) ?? "pillarbox";
const databaseUrl = process.env["PILLARBOX_OUTBOX__DATABASE__URL"] ?? "";
const natsUrl = process.env["PILLARBOX_OUTBOX__SINKS__EVENTS__URL"] ?? "";
const running: ChildProcess[] = [];
// Ends the started processes if the story itself is killed: only the story holds its stdin open.
const CARETAKER = `trap '' INT TERM HUP; while read -r pid; do pids="$pids $pid"; done; kill -9 $pids`;
const caretaker = spawn("sh", ["-c", CARETAKER], { stdio: ["pipe", "ignore", "ignore"] });

function expect(kept: boolean, promise: string): void {
  if (!kept) throw new Error(`BROKEN: ${promise}`);
}

function start(program: string, ...parameters: string[]): ChildProcess {
  const child = spawn(program, parameters, { cwd: FOLDER, stdio: ["ignore", "pipe", "inherit"] });
  running.push(child);
  caretaker.stdin.write(`${child.pid}\n`);
  return child;
}

/** The first line is the service's address. */
async function startService(): Promise<string> {
  const service = start(process.execPath, `${__dirname}/main.js`);
  for await (const line of createInterface({ input: service.stdout! })) return line;
  throw new Error("the service ended at once");
}

function startRelay(): ChildProcess {
  return start(pillarbox, "--log", "warn", "run", "--no-http");
}

async function post(url: string, body: unknown): Promise<[number, Record<string, string>]> {
  const answer = await fetch(url, {
    method: "POST",
    headers: { "content-type": "application/json", traceparent: TRACE },
    body: JSON.stringify(body),
    signal: AbortSignal.timeout(PATIENCE_MS),
  });
  return [answer.status, (await answer.json()) as Record<string, string>];
}

interface Committed {
  type: string;
  order: string;
  version: number;
}

/** Creates and cancels orders; some requests are refused. Returns what was committed, in order. */
async function trade(service: string, relay: ChildProcess): Promise<Committed[]> {
  const committed: Committed[] = [];
  const order = async (customer: string, total: number): Promise<string> => {
    const [status, { id }] = await post(`${service}/orders`, { customer, total });
    expect(status === 201 && id !== undefined, `an order is taken: ${status}`);
    committed.push({ type: "OrderCreated", order: id!, version: 1 });
    return id!;
  };
  for (let n = 1; n <= 5; n++) await order("ada", n * 100);
  relay.kill("SIGKILL");
  for (let n = 1; n <= 5; n++) {
    const id = await order("grace", n);
    const [status] = await post(`${service}/orders/${id}/cancel`, {});
    expect(status === 200, `an order is cancelled: ${status}`);
    committed.push({ type: "OrderCancelled", order: id, version: 2 });
  }
  startRelay();
  console.log("10 orders were created and 5 of them cancelled. Meanwhile the relay was killed, and started again.");

  const id = randomUUID();
  const statuses: number[] = [];
  for (let n = 0; n < 2; n++) statuses.push((await post(`${service}/orders`, { id, customer: "ada", total: 7 }))[0]);
  expect(`${statuses}` === "201,200", `a request that is sent again is answered the same: ${statuses}`);
  committed.push({ type: "OrderCreated", order: id, version: 1 });
  console.log("One request was sent twice, with the same id.");

  const [broke] = await post(`${service}/orders`, { customer: "ada", total: 1_000_000 });
  expect(broke === 409, `the transaction is rolled back: ${broke}`);
  console.log("One transaction was rolled back, after its order and its event were written.");

  const [refused, { error }] = await post(`${service}/orders`, { customer: "c".repeat(300), total: 1 });
  expect(refused === 422, `an event that can't be sent is refused: ${refused}`);
  expect(error === "user_id has 300 bytes; 255 are allowed", `in words: ${error}`);
  console.log(`One was refused: ${error}.`);
  return committed;
}

/** Waits until no event is pending. Returns the number of orders. */
async function settled(): Promise<number> {
  const database = new Client({ connectionString: databaseUrl });
  await database.connect();
  const number = async (sql: string): Promise<number> => Number((await database.query<{ n: string }>(sql)).rows[0]?.n);
  const deadline = Date.now() + PATIENCE_MS;
  while ((await number("select count(*) as n from outbox_events where status <> 'published'")) > 0) {
    expect(Date.now() < deadline, "everything is delivered");
  }
  const orders = await number("select count(*) as n from orders");
  await database.end();
  return orders;
}

/** Everything in the stream: the expected number of events, and any more that the stream has. */
async function arrived(expected: number): Promise<JsMsg[]> {
  const nats = await connect({ servers: natsUrl });
  const js = jetstream(nats);
  const consumer = await js.consumers.get("ORDERS");
  const messages: JsMsg[] = [];
  const deadline = Date.now() + PATIENCE_MS;
  while (messages.length < expected && Date.now() < deadline) {
    for await (const message of await consumer.fetch({ max_messages: expected, expires: 1000 })) messages.push(message);
  }
  const { state } = await (await js.jetstreamManager()).streams.info("ORDERS");
  expect(state.messages === expected, `the stream holds ${expected} messages and no more: ${state.messages}`);
  await nats.close();
  return messages;
}

async function judge(committed: Committed[]): Promise<void> {
  const orders = await settled();
  const messages = await arrived(committed.length);
  const seen = messages.map((message) => {
    const header = (name: string): string => message.headers?.get(name) ?? "";
    const body = message.json<{ id: string; customer: string }>();
    const type = header("Pillarbox-Event-Type");
    expect(header("Pillarbox-Key") === body.id, `the key is the order: ${header("Pillarbox-Key")}`);
    expect(message.subject === (type === "OrderCreated" ? "orders.created" : "orders.cancelled"), message.subject);
    expect(header("traceparent") === TRACE, `its trace: ${header("traceparent")}`);
    expect(type !== "OrderCreated" || header("Nats-Msg-Id") === body.id, `its id: ${header("Nats-Msg-Id")}`);
    return { type, order: body.id, version: Number(header("Pillarbox-Aggregate-Version")) };
  });
  const inOrder = (events: Committed[]): string =>
    JSON.stringify([...events].sort((a, b) => a.order.localeCompare(b.order)));
  // Sorting by order id is stable: the events of each order keep the sequence in which they arrived.
  expect(inOrder(seen) === inOrder(committed), `${inOrder(seen)} arrived of ${inOrder(committed)}`);
  const created = committed.filter((event) => event.type === "OrderCreated").length;
  expect(orders === created, `${orders} orders in the database, ${created} were answered with 201`);
  console.log(`${messages.length} events were committed, and each arrived once, in the order of its key.`);
}

async function main(): Promise<void> {
  for (const parameters of [["migrate"], ["streams", "apply"]]) {
    execFileSync(pillarbox, parameters, { cwd: FOLDER, stdio: ["ignore", "ignore", "inherit"] });
  }
  const service = await startService();
  await judge(await trade(service, startRelay()));
  if (process.argv.includes("--once")) return;
  console.log(`The service: ${service}/orders. Its events are in the stream ORDERS at ${natsUrl} (Ctrl-C ends it)`);
  for (;;) {
    await post(`${service}/orders`, { customer: "ada", total: 1 });
    await new Promise((done) => setTimeout(done, 1000));
  }
}

/** Ends the started processes first. */
async function end(code: number): Promise<never> {
  const alive = running.filter((child) => child.exitCode === null && child.signalCode === null);
  const ended = alive.map((child) => new Promise((done) => child.once("exit", done)));
  for (const child of alive) child.kill("SIGTERM");
  await Promise.race([Promise.all(ended), new Promise((done) => setTimeout(done, PATIENCE_MS))]);
  caretaker.kill("SIGKILL");
  process.exit(code);
}

process.on("SIGINT", () => void end(0));
process.on("SIGTERM", () => void end(1));
// The process that started this has ended.
if (process.argv.includes("--until-stdin-ends")) process.stdin.on("end", () => void end(1)).resume();
main().then(
  () => end(0),
  (error: unknown) => {
    console.error(error instanceof Error ? error.message : error);
    return end(1);
  },
);
