-- How much does each host lack? Hosts without a loss count, too.
SELECT t.host, t.trace, t.events AS events_count, count(l.kind) AS kinds, coalesce(sum(l."count"), 0) AS lost
FROM traces AS t
LEFT JOIN losses AS l ON l.trace = t.trace
GROUP BY t.host, t.trace, t.events
ORDER BY t.host, t.trace
