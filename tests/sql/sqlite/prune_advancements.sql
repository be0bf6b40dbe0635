DELETE FROM ductwork_advancements WHERE ductwork_advancements.transition_id IN (SELECT c0 FROM ductwork_rows(?1))
