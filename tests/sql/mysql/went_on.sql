UPDATE ductwork_departed SET death = death || ? WHERE id = ?
