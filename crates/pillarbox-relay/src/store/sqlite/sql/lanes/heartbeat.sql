-- Records that a relay is alive. The relays' primary key serves it.
insert into {events_relays} (id, name, seen_at, expires_at)
values (?1, ?2, ?3, ?4)
on conflict (id) do update set name = excluded.name, seen_at = excluded.seen_at, expires_at = excluded.expires_at
