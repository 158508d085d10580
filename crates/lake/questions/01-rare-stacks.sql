-- Which stacks of system calls occur on one host only?
SELECT stack_id, min(host) AS only_host, min(process) AS process_name, count(*) AS calls
FROM events
WHERE event = 'PerfInfo/SysCallEnter' AND stack_id IS NOT NULL
GROUP BY stack_id
HAVING count(DISTINCT host) = 1
ORDER BY calls DESC, stack_id
LIMIT 100
