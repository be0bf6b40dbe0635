UPDATE ductwork_runs SET halted_at = halted_at
 WHERE id = ?1 AND status = 'halted' AND pruning_at IS NULL
