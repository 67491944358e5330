-- What the living relays report. Reads the whole of a small table; locks nothing.
select r.troubles::text from {events_relays} r where r.expires_at > now() and r.troubles <> '[]'::jsonb
