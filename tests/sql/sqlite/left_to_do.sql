SELECT 1 AS found WHERE EXISTS (
    SELECT 1 FROM ductwork_runs r
     WHERE r.cancelling_at IS NOT NULL AND r.cancelling_at <= CAST(unixepoch('subsec') * 1000000 AS INTEGER) - ?1)
OR EXISTS (
    SELECT 1 FROM ductwork_runs r
     WHERE r.cancelling_at IS NOT NULL AND r.cancelling_at > CAST(unixepoch('subsec') * 1000000 AS INTEGER))
OR EXISTS (
    SELECT 1 FROM ductwork_runs r
     WHERE r.pruning_at IS NOT NULL AND r.pruning_at <= CAST(unixepoch('subsec') * 1000000 AS INTEGER) - ?2)
OR EXISTS (
    SELECT 1 FROM ductwork_runs r
     WHERE r.pruning_at IS NOT NULL AND r.pruning_at > CAST(unixepoch('subsec') * 1000000 AS INTEGER))
OR EXISTS (
    SELECT 1 FROM ductwork_deadlines d
     WHERE d.answer_by <= CAST(unixepoch('subsec') * 1000000 AS INTEGER) AND d.unanswered IN ('halt', 'approve'))
OR EXISTS (
    SELECT 1 FROM ductwork_runs r INDEXED BY ductwork_runs_ended
     WHERE ?3 = 1 AND r.status IN ('completed', 'halted', 'cancelled')
       AND coalesce(r.completed_at, r.halted_at, r.cancelled_at) <= CAST(unixepoch('subsec') * 1000000 AS INTEGER) - ?4)
OR EXISTS (
    SELECT 1 FROM ductwork_departed d WHERE d.gone_at <= CAST(unixepoch('subsec') * 1000000 AS INTEGER) - ?5)
