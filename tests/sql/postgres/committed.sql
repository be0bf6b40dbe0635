SELECT held.execution_id, held.last FROM touched LEFT JOIN held ON true
