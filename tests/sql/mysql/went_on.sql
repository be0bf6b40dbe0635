UPDATE ductwork_departed SET death = death || ? WHERE id = ? AND death IS NOT NULL
