UPDATE ductwork_transitions SET completed_at = (extract(epoch from statement_timestamp()) * 1000000)::bigint, via = 'end', produced = 0
 WHERE completed_at IS NULL
   AND branch_id IN (SELECT br.id FROM ductwork_branches br WHERE br.run_id = $1)
