-- A console is a process as well. SQLite cannot widen a CHECK, so the table is rebuilt, with all of its rows.
CREATE TABLE ductwork_processes_anew (
    id                blob PRIMARY KEY,
    supervisor_id     blob,
    role              text NOT NULL CHECK (role IN ('supervisor', 'advancer', 'worker', 'console')),
    pipeline          text,
    host              text NOT NULL,
    boot_id           text NOT NULL,
    pid_namespace     text NOT NULL,
    pid               integer NOT NULL,
    -- The kernel's start time of the process: distinguishes it from a later one with the same pid.
    pid_started_at    integer NOT NULL,
    version           text NOT NULL,
    started_at        integer NOT NULL,
    last_heartbeat_at integer NOT NULL,
    beat_seq          integer NOT NULL DEFAULT 0,
    -- Counters since its start.
    claimed           integer NOT NULL DEFAULT 0,
    succeeded         integer NOT NULL DEFAULT 0,
    errored           integer NOT NULL DEFAULT 0,
    crashed           integer NOT NULL DEFAULT 0,
    advanced          integer NOT NULL DEFAULT 0,
    stale             integer NOT NULL DEFAULT 0,
    statements        integer NOT NULL DEFAULT 0,
    epoch             integer NOT NULL DEFAULT 0,
    quiet             integer NOT NULL DEFAULT 0,
    worked_at         integer,
    trouble           text,
    troubled_at       integer
) STRICT;
INSERT INTO ductwork_processes_anew
      (id, supervisor_id, role, pipeline, host, boot_id, pid_namespace, pid, pid_started_at, version,
       started_at, last_heartbeat_at, beat_seq, claimed, succeeded, errored, crashed, advanced, stale,
       statements, epoch, quiet, worked_at, trouble, troubled_at)
SELECT id, supervisor_id, role, pipeline, host, boot_id, pid_namespace, pid, pid_started_at, version,
       started_at, last_heartbeat_at, beat_seq, claimed, succeeded, errored, crashed, advanced, stale,
       statements, epoch, quiet, worked_at, trouble, troubled_at
  FROM ductwork_processes;
DROP TABLE ductwork_processes;
ALTER TABLE ductwork_processes_anew RENAME TO ductwork_processes;
