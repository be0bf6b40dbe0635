SELECT 1 AS found WHERE EXISTS (
    SELECT 1 FROM ductwork_runs r
     WHERE r.cancelling_at IS NOT NULL AND r.cancelling_at <= (extract(epoch from statement_timestamp()) * 1000000)::bigint - $1)
OR EXISTS (
    SELECT 1 FROM ductwork_runs r
     WHERE r.cancelling_at IS NOT NULL AND r.cancelling_at > (extract(epoch from statement_timestamp()) * 1000000)::bigint)
OR EXISTS (
    SELECT 1 FROM ductwork_runs r
     WHERE r.pruning_at IS NOT NULL AND r.pruning_at <= (extract(epoch from statement_timestamp()) * 1000000)::bigint - $2)
OR EXISTS (
    SELECT 1 FROM ductwork_runs r
     WHERE r.pruning_at IS NOT NULL AND r.pruning_at > (extract(epoch from statement_timestamp()) * 1000000)::bigint)
OR EXISTS (
    SELECT 1 FROM ductwork_deadlines d
     WHERE d.answer_by <= (extract(epoch from statement_timestamp()) * 1000000)::bigint AND d.unanswered IN ('halt', 'approve'))
OR EXISTS (
    SELECT 1 FROM ductwork_runs r 
     WHERE $3 = 1 AND r.status IN ('completed', 'halted', 'cancelled')
       AND coalesce(r.completed_at, r.halted_at, r.cancelled_at) <= (extract(epoch from statement_timestamp()) * 1000000)::bigint - $4)
OR EXISTS (
    SELECT 1 FROM ductwork_departed d WHERE d.gone_at <= (extract(epoch from statement_timestamp()) * 1000000)::bigint - $5)
