-- Which files are written by which programs?
SELECT e.file_path, p.name AS process_name, p.user_sid, count(DISTINCT e.host) AS hosts, count(*) AS writes,
  min(e.time) AS first_write, max(e.time) AS last_write
FROM events AS e
LEFT JOIN processes AS p ON p.trace = e.trace AND p.process_uid = e.process_uid
WHERE e.event = 'FileIo/Write' AND e.file_path IS NOT NULL
GROUP BY e.file_path, p.name, p.user_sid
ORDER BY writes DESC, e.file_path, process_name NULLS LAST, p.user_sid NULLS LAST
