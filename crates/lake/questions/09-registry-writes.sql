-- Which programs write which registry values?
SELECT process, registry_path, registry_value, count(DISTINCT host) AS hosts, count(*) AS writes
FROM events
WHERE event = 'Registry/SetValue'
GROUP BY process, registry_path, registry_value
ORDER BY writes DESC, process NULLS LAST, registry_path NULLS LAST, registry_value NULLS LAST
