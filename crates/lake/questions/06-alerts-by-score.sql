-- Which alerts have the highest scores?
SELECT host, alert, score, severity, "count" AS findings_count, pid, process, first_seen, last_seen
FROM alerts
ORDER BY score DESC, host, alert
LIMIT 100
