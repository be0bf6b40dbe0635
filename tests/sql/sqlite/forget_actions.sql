DELETE FROM ductwork_actions WHERE ductwork_actions.id IN (SELECT c0 FROM ductwork_rows(?1))
