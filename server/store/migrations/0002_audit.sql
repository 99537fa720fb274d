-- Calls that change something or hand out data: who asked for what, and what came of it. A call's row is inserted
-- before its change and gets its result once, when the call has ended.
CREATE TABLE audit (
  number INTEGER PRIMARY KEY,  -- order of the calls
  time_us INTEGER NOT NULL,
  caller TEXT NOT NULL,   -- the authenticated caller: a user's name, a token's name, or "anonymous"
  address TEXT NOT NULL,  -- "unix", or the address and port at the other end of the connection
  action TEXT NOT NULL,   -- the RPC: CancelJob
  object TEXT NOT NULL,   -- the name that the call concerns: projects/default/jobs/digits-1; '' for none
  result TEXT NOT NULL    -- OK, or the error's reason; '' before the call has ended
) STRICT;
CREATE INDEX audit_by_time ON audit (time_us);
CREATE TRIGGER audit_result_once BEFORE UPDATE ON audit
  WHEN old.result <> '' OR new.number <> old.number OR new.time_us <> old.time_us OR new.caller <> old.caller
    OR new.address <> old.address OR new.action <> old.action BEGIN
  SELECT RAISE(ABORT, 'an audit entry is written once');
END;
