UPDATE ductwork_advancements SET lease_until = (extract(epoch from statement_timestamp()) * 1000000)::bigint + $1
 WHERE process_id = $2 AND completed_at IS NULL
   AND id IN (SELECT id FROM ductwork_advancements
               WHERE process_id = $2 AND completed_at IS NULL FOR UPDATE SKIP LOCKED)
RETURNING id
