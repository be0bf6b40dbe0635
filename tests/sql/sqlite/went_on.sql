UPDATE ductwork_departed SET death = death || ?1 WHERE id = ?2
