/** Orders: each change and its event in one transaction. */

import "reflect-metadata";
import type { Pool } from "pg";
import { Check, Column, DataSource, Entity, type EntityManager, PrimaryColumn } from "typeorm";

import { enqueue } from "./outbox";

@Entity("customers")
@Check("within_credit", "credit >= 0")
export class Customer {
  @PrimaryColumn("text")
  id!: string;

  @Column("bigint", { default: 100_000 })
  credit!: string;
}

@Entity("orders")
export class Order {
  @PrimaryColumn("uuid")
  id!: string;

  @Column("text")
  customer!: string;

  @Column("bigint")
  total!: string;

  @Column("text", { default: "created" })
  status!: string;

  @Column("integer", { default: 1 })
  version!: number;
}

export interface NewOrder {
  id: string;
  customer: string;
  total: number;
}

export async function connect(url: string): Promise<DataSource> {
  const source = new DataSource({ type: "postgres", url, entities: [Customer, Order], synchronize: true });
  return source.initialize();
}

/** With TypeORM. False: this order and its event already exist. */
export async function create(source: DataSource, order: NewOrder, trace: Record<string, string>): Promise<boolean> {
  return source.transaction(async (manager) => {
    const inserted = await insert(manager, order);
    await enqueue(manager, {
      topic: "orders.created",
      key: order.id,
      type: "OrderCreated",
      payload: order,
      aggregateType: "Order",
      aggregateVersion: 1,
      id: order.id,
      userId: order.customer,
      headers: trace,
    });
    // After the order and its event. If the credit is too low, the check constraint rolls back everything.
    if (inserted) {
      await manager.decrement(Customer, { id: order.customer }, "credit", order.total);
    }
    return inserted;
  });
}

async function insert(manager: EntityManager, order: NewOrder): Promise<boolean> {
  await manager.createQueryBuilder().insert().into(Customer).values({ id: order.customer }).orIgnore().execute();
  const row = { id: order.id, customer: order.customer, total: String(order.total) };
  const written = await manager.createQueryBuilder().insert().into(Order).values(row).orIgnore().returning("id").execute();
  return written.raw.length > 0;
}

/** With plain pg. False: there is no such order, or it is already cancelled. */
export async function cancel(pool: Pool, id: string, trace: Record<string, string>): Promise<boolean> {
  const client = await pool.connect();
  try {
    await client.query("begin");
    const changed = await client.query<{ version: number; customer: string }>(
      "update orders set status = 'cancelled', version = version + 1 where id = $1 and status = 'created' returning version, customer",
      [id],
    );
    const row = changed.rows[0];
    if (row) {
      await enqueue(client, {
        topic: "orders.cancelled",
        key: id,
        type: "OrderCancelled",
        payload: { id, customer: row.customer },
        aggregateType: "Order",
        aggregateVersion: row.version,
        userId: row.customer,
        headers: trace,
      });
    }
    await client.query("commit");
    return row !== undefined;
  } catch (error) {
    await client.query("rollback");
    throw error;
  } finally {
    client.release();
  }
}
