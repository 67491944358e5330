-- The reports of the relays that are alive. Reads the whole of a small table; locks nothing.
select {text r.troubles} from {events_relays} as r where r.expires_at > {now} and {text r.troubles} <> '[]'
