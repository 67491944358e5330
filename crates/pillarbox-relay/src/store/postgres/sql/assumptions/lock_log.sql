-- Waits until no settlement is appending to the event log, and lets none begin. Otherwise one could still commit a position
-- below the new ones. Locks the table until the transaction ends.
lock table {events_log} in share row exclusive mode
