-- Which modules cause the most events of each kind?
SELECT event, final_user_module, events_count, place
FROM (
  SELECT e.event, s.final_user_module, count(*) AS events_count,
    row_number() OVER (PARTITION BY e.event ORDER BY count(*) DESC, s.final_user_module) AS place
  FROM events AS e
  JOIN stacks AS s ON s.trace = e.trace AND s.stack_id = e.stack_id
  WHERE s.final_user_module IS NOT NULL
  GROUP BY e.event, s.final_user_module
) AS counted
WHERE place <= 3
ORDER BY event, place
