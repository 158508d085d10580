-- Which programs start which other programs?
SELECT parent.name AS parent_name, child.name AS child_name,
  count(DISTINCT child.host) AS hosts, count(*) AS starts
FROM processes AS child
JOIN processes AS parent ON parent.trace = child.trace AND parent.process_uid = child.parent_uid
GROUP BY parent.name, child.name
ORDER BY starts DESC, parent_name NULLS LAST, child_name NULLS LAST
