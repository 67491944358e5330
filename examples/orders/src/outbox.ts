/** Writes events in the transaction that causes them. A Node service needs nothing else of Pillarbox. */

/** An open transaction: TypeORM's EntityManager, or a client of `pg` after `begin`. */
export interface Transaction {
  query(sql: string, values: unknown[]): Promise<unknown>;
}

export interface OutboxEvent {
  topic: string;
  /** The unit of order: events of one key arrive in the order in which they were written. */
  key: string;
  type: string;
  payload: unknown;
  aggregateType: string;
  aggregateVersion?: number;
  /** The same at every attempt: a second event with this id is not written. Without an id, the database makes one. */
  id?: string;
  userId?: string;
  headers?: Record<string, string>;
}

const ENQUEUE = `
  select pillarbox.enqueue($1, $2, $3, $4, aggregate_type => $5, aggregate_version => $6, id => $7, user_id => $8,
                           headers => $9) as id`;

/** Writes an event in this transaction and returns its id. It is delivered if and only if the transaction commits. */
export async function enqueue(transaction: Transaction, event: OutboxEvent): Promise<string> {
  const result = await transaction.query(ENQUEUE, [
    event.topic,
    event.key,
    event.type,
    JSON.stringify(event.payload),
    event.aggregateType,
    event.aggregateVersion ?? null,
    event.id ?? null,
    event.userId ?? null,
    event.headers ?? {},
  ]);
  // TypeORM returns the rows, pg an object with the rows.
  const rows = (Array.isArray(result) ? result : (result as { rows: unknown[] }).rows) as { id: string }[];
  return rows[0]!.id;
}

/** The error of PostgreSQL, with or without TypeORM around it. */
interface Refusal {
  code?: string;
  message: string;
  detail?: string;
}

function refusal(error: unknown): Refusal | undefined {
  const { driverError } = error as { driverError?: Refusal };
  return driverError ?? (error instanceof Error ? error : undefined);
}

/** Why the event itself was refused. */
export function whyRefused(error: unknown): string | undefined {
  const said = refusal(error);
  return said?.code === "PB400" ? said.message : undefined;
}

/** If the outbox is full: after how many seconds to retry the whole transaction. */
export function retryAfterSeconds(error: unknown): number | undefined {
  const said = refusal(error);
  if (said?.code !== "PB429") return undefined;
  const { retry_after_ms: milliseconds = 1000 } = JSON.parse(said.detail ?? "{}") as { retry_after_ms?: number };
  return Math.max(1, Math.ceil(milliseconds / 1000));
}

/** A constraint of the application itself was violated. */
export function brokenConstraint(error: unknown): boolean {
  return refusal(error)?.code === "23514";
}
