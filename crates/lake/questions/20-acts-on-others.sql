-- Which programs act on other processes, and on which?
SELECT e.event, a.name AS acting, t.name AS target, count(DISTINCT e.host) AS hosts, count(*) AS events_count
FROM events AS e
LEFT JOIN processes AS a ON a.trace = e.trace AND a.process_uid = e.process_uid
LEFT JOIN processes AS t ON t.trace = e.trace AND t.process_uid = e.target_process_uid
WHERE e.target_pid IS NOT NULL
GROUP BY e.event, a.name, t.name
ORDER BY events_count DESC, e.event, acting NULLS LAST, target NULLS LAST
