-- reports lists the progress reports of a task, oldest first.
-- ARGV: task
-- Reply: "seq at run token json"...
-- Errors: not_found
if call('EXISTS', K('task:', ARGV[1])) == 0 then return refuse('not_found', 'kind', 'task') end
return call('LRANGE', K('reports:', ARGV[1]), 0, -1)
