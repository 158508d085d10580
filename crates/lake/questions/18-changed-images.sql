-- Which paths have several images, and who has the rarest one?
SELECT m.path, m.module_id, m.time_date_stamp, m.size, count(DISTINCT m.host) AS hosts, min(m.host) AS first_host
FROM modules AS m
JOIN (
  SELECT path FROM modules GROUP BY path HAVING count(DISTINCT module_id) > 1
) AS changed ON changed.path = m.path
GROUP BY m.path, m.module_id, m.time_date_stamp, m.size
ORDER BY hosts, m.path, m.module_id
