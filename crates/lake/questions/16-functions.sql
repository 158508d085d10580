-- Which functions are in the most stacks?
SELECT f.module, s.name AS function_name, s.origin,
  count(DISTINCT f.stack_id) AS stacks_count, count(DISTINCT f.host) AS hosts, min(f.depth) AS lowest_depth
FROM frames AS f
JOIN symbols AS s
  ON s.trace = f.trace AND s.module_id = f.module_id AND s.rva = f.rva AND s.is_return = f.is_return
GROUP BY f.module, s.name, s.origin
ORDER BY stacks_count DESC, f.module, function_name, s.origin
LIMIT 100
