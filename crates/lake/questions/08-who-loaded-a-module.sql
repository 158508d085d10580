-- Who loaded bcrypt.dll, and in which versions?
SELECT p.name AS process_name, r.module_id, count(DISTINCT r.host) AS hosts, count(*) AS loads, min(r.base) AS lowest
FROM regions AS r
JOIN modules AS m ON m.trace = r.trace AND m.module_id = r.module_id
JOIN processes AS p ON p.trace = r.trace AND p.process_uid = r.process_uid
WHERE r.kind = 'image' AND lower(m.name) = 'bcrypt.dll'
GROUP BY p.name, r.module_id
ORDER BY process_name NULLS LAST, r.module_id
