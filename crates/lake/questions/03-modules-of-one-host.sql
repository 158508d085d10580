-- Which modules did only one host load? Equal ids are equal names, time stamps and sizes.
SELECT module_id, min(name) AS module_name, min(path) AS module_path, min(host) AS only_host
FROM modules
GROUP BY module_id
HAVING count(DISTINCT host) = 1
ORDER BY module_name, module_id
