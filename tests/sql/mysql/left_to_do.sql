SELECT 1 AS found WHERE EXISTS (
    SELECT 1 FROM ductwork_runs r
     WHERE r.cancelling_at IS NOT NULL AND r.cancelling_at <= TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6)) - ?)
OR EXISTS (
    SELECT 1 FROM ductwork_runs r
     WHERE r.cancelling_at IS NOT NULL AND r.cancelling_at > TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6)))
OR EXISTS (
    SELECT 1 FROM ductwork_runs r
     WHERE r.pruning_at IS NOT NULL AND r.pruning_at <= TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6)) - ?)
OR EXISTS (
    SELECT 1 FROM ductwork_runs r
     WHERE r.pruning_at IS NOT NULL AND r.pruning_at > TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6)))
OR EXISTS (
    SELECT 1 FROM ductwork_deadlines d
     WHERE d.answer_by <= TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6)) AND d.unanswered IN ('halt', 'approve'))
OR EXISTS (
    SELECT 1 FROM ductwork_runs r FORCE INDEX (ductwork_runs_ended)
     WHERE ? = 1 AND r.status IN ('completed', 'halted', 'cancelled')
       AND r.ended_at <= TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6)) - ?)
OR EXISTS (
    SELECT 1 FROM ductwork_departed d WHERE d.gone_at <= TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6)) - ?)
