-- Which completed system calls took longest?
SELECT service, process, host, number, call_duration, call_status, time
FROM events
WHERE event = 'PerfInfo/SysCallEnter' AND call_duration IS NOT NULL
ORDER BY call_duration DESC, host, number
LIMIT 50
