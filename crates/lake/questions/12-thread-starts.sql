-- Which threads start outside of all modules?
SELECT t.host, p.name AS process_name, t.tid, t.start_address, t.start_time, t.start_evidence
FROM threads AS t
JOIN processes AS p ON p.trace = t.trace AND p.process_uid = t.process_uid
WHERE t.start_module_id IS NULL AND t.start_address IS NOT NULL
ORDER BY t.host, t.tid, t.start_address, t.start_time NULLS LAST, t.start_evidence, process_name NULLS LAST
