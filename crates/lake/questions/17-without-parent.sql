-- Which processes have no parent in their trace?
SELECT child.name AS process_name, child.path, count(DISTINCT child.host) AS hosts, count(*) AS processes_count,
  min(child.pid) AS lowest_pid
FROM processes AS child
LEFT JOIN processes AS parent ON parent.trace = child.trace AND parent.process_uid = child.parent_uid
WHERE parent.process_uid IS NULL
GROUP BY child.name, child.path
ORDER BY processes_count DESC, process_name NULLS LAST, child.path NULLS LAST
