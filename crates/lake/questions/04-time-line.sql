-- How many events of which processes are in each second?
SELECT date_trunc('second', CAST(time AS TIMESTAMP)) AS second, host, process, count(*) AS events_count, count(stack_id) AS with_stack
FROM events
WHERE time IS NOT NULL AND process IS NOT NULL
GROUP BY date_trunc('second', CAST(time AS TIMESTAMP)), host, process
ORDER BY second, host, process
