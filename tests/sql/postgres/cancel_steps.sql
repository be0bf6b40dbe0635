UPDATE ductwork_steps SET status = 'cancelled', completed_at = (extract(epoch from statement_timestamp()) * 1000000)::bigint
 WHERE status IN ('in_progress', 'advancing', 'waiting')
   AND id IN (SELECT br.step_id FROM ductwork_branches br WHERE br.run_id = $1)
