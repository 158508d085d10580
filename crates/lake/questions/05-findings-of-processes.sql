-- Which programs, of which users, have which findings?
SELECT p.path, p.user_name, p.integrity, f.detection, f.severity,
  count(DISTINCT f.host) AS hosts, count(*) AS findings_count
FROM findings AS f
JOIN processes AS p ON p.trace = f.trace AND p.process_uid = f.process_uid
GROUP BY p.path, p.user_name, p.integrity, f.detection, f.severity
ORDER BY f.detection, p.path NULLS LAST, p.user_name NULLS LAST, p.integrity NULLS LAST, f.severity
