DELETE FROM ductwork_deadlines WHERE branch_id = ANY ($1::uuid[])
