-- When did each host first start each program?
SELECT host, path, min(created) AS first_start, count(*) AS starts, count(DISTINCT user_sid) AS users
FROM processes
WHERE created IS NOT NULL AND path IS NOT NULL
GROUP BY host, path
ORDER BY host, first_start, path
