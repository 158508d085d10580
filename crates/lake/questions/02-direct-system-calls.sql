-- Which programs make direct or indirect system calls, by detection?
SELECT detection, title, process, count(DISTINCT host) AS hosts, count(*) AS findings_count
FROM findings
WHERE detection IN ('CS02', 'CS03', 'CS04', 'CS05')
GROUP BY detection, title, process
ORDER BY detection, process NULLS LAST
