-- How many events of which processes are in each second? Not all engines truncate times in nanoseconds, but all write
-- them with 10 characters for the date and 8 for the second.
SELECT concat(substring(CAST(time AS VARCHAR), 1, 10), ' ', substring(CAST(time AS VARCHAR), 12, 8)) AS second,
  host, process, count(*) AS events_count, count(stack_id) AS with_stack
FROM events
WHERE time IS NOT NULL AND process IS NOT NULL
GROUP BY second, host, process
ORDER BY second, host, process
