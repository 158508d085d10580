-- Which events have code in their stacks that is in no image?
SELECT e.event, e.process, s.final_user_module, e.contains_unbacked,
  count(DISTINCT e.host) AS hosts, count(*) AS events_count, max(s.unbacked_frames) AS most_frames
FROM events AS e
JOIN stacks AS s ON s.trace = e.trace AND s.stack_id = e.stack_id
WHERE s.unbacked_frames > 0
GROUP BY e.event, e.process, s.final_user_module, e.contains_unbacked
ORDER BY events_count DESC, e.event, e.process NULLS LAST, s.final_user_module NULLS LAST,
  e.contains_unbacked NULLS LAST
