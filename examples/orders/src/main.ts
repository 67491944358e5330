/** The service: POST /orders, POST /orders/{id}/cancel. Prints its address when it listens. */

import { randomUUID } from "node:crypto";
import { createServer, type IncomingMessage, type ServerResponse } from "node:http";
import type { AddressInfo } from "node:net";
import { Pool } from "pg";
import type { DataSource } from "typeorm";

import { cancel, connect, create, type NewOrder } from "./orders";
import { brokenConstraint, retryAfterSeconds, whyRefused } from "./outbox";

const BODY_BYTES_MAX = 64 * 1024;

interface Answer {
  status: number;
  body: unknown;
  headers?: Record<string, string>;
}

async function read(request: IncomingMessage): Promise<unknown> {
  const parts: Buffer[] = [];
  let bytes = 0;
  for await (const part of request) {
    bytes += (part as Buffer).length;
    if (bytes > BODY_BYTES_MAX) throw new SyntaxError("the body is too large");
    parts.push(part as Buffer);
  }
  return JSON.parse(Buffer.concat(parts).toString("utf8"));
}

function order(body: unknown): NewOrder {
  const { id = randomUUID(), customer, total } = (body ?? {}) as Partial<NewOrder>;
  const whole = typeof id === "string" && typeof customer === "string" && Number.isSafeInteger(total);
  if (!whole || !/^[0-9a-f-]{36}$/.test(id)) throw new SyntaxError("an order has a customer, a total and perhaps a UUID as its id");
  return { id, customer: customer as string, total: total as number };
}

/** Passes the trace context on. */
function trace(request: IncomingMessage): Record<string, string> {
  const { traceparent } = request.headers;
  return typeof traceparent === "string" ? { traceparent } : {};
}

async function answer(source: DataSource, pool: Pool, request: IncomingMessage): Promise<Answer> {
  const path = request.url ?? "";
  if (request.method === "POST" && path === "/orders") {
    const wanted = order(await read(request));
    const isNew = await create(source, wanted, trace(request));
    return { status: isNew ? 201 : 200, body: { id: wanted.id } };
  }
  const id = /^\/orders\/([0-9a-f-]{36})\/cancel$/.exec(path)?.[1];
  if (request.method === "POST" && id) {
    const done = await cancel(pool, id, trace(request));
    return done ? { status: 200, body: { id } } : { status: 404, body: { error: "there is no such order to cancel" } };
  }
  return { status: 404, body: { error: "there is nothing here" } };
}

function failed(error: unknown): Answer {
  const why = whyRefused(error);
  if (why) return { status: 422, body: { error: why } };
  const seconds = retryAfterSeconds(error);
  if (seconds) {
    return { status: 429, body: { error: "too many events are pending: try again later" }, headers: { "retry-after": String(seconds) } };
  }
  if (brokenConstraint(error)) return { status: 409, body: { error: "the customer's credit does not suffice" } };
  if (error instanceof SyntaxError) return { status: 400, body: { error: error.message } };
  console.error(error);
  return { status: 500, body: { error: "this went wrong here" } };
}

async function main(): Promise<void> {
  const url = process.env["PILLARBOX_OUTBOX__DATABASE__URL"] ?? "postgres://shop@127.0.0.1/shop";
  const source = await connect(url);
  const pool = new Pool({ connectionString: url });
  const server = createServer((request: IncomingMessage, response: ServerResponse) => {
    void answer(source, pool, request)
      .catch(failed)
      .then(({ status, body, headers }) => {
        response.writeHead(status, { "content-type": "application/json", ...headers }).end(JSON.stringify(body));
      });
  });
  server.listen(Number(process.env["PORT"] ?? 0), "127.0.0.1", () => {
    console.log(`http://127.0.0.1:${(server.address() as AddressInfo).port}`);
  });
}

void main();
