-- What a look at the store found wrong. Every finding is in the reply; in the
-- log it is once an hour for one thing and kind, so that lasting damage does
-- not flood it. A repair is made in the step that found its cause, so two
-- inspectors make it once.
local HOUR = 3600000
local findings = {}
on_call(function() forget(findings) end)

local function repairs() return ARGV[2] == '1' end

-- repair_index keeps a list right that nothing but figures is made of: a store from
-- before it was kept has none, and that is not damage.
local function repair_index(key, member, score)
  if not repairs() then return end
  if score then
    call('ZADD', key, 'NX', score, member)
  else
    call('ZREM', key, member)
  end
end

-- report_violation notes a finding. repair, if there is one, repairs it; without it there is only
-- the alarm. It returns whether it was repaired.
local function report_violation(kind, subject, detail, repair)
  local repaired_now = repairs() and repair ~= nil
  if repaired_now then repair() end
  local event = repaired_now and 'invariant.repaired' or 'invariant.violated'
  local told = call('SET', K('told:', event .. ':' .. kind .. ':' .. subject), '1', 'NX', 'PX', F(HOUR))
  if told then
    emit(event, { task = string.match(subject, '^task_[^:]*'), actor = ARGV[1] },
      '{"kind":' .. quote(kind) .. ',"subject":' .. quote(subject) .. ',"reason":' .. quote(detail) .. '}')
  end
  findings[#findings + 1] = named{ kind = kind, subject = subject, detail = detail, repaired = repaired_now and 1 or 0,
    told = told and 1 or 0 }
  return repaired_now
end

-- check_member holds the place of a member in a sorted set against what it has to
-- be: a score, true for any score, false for none. entry is the score it gets
-- where it is missing and any would do. It returns whether it was repaired.
local function check_member(kind, key, member, want, entry)
  local got = call('ZSCORE', key, member)
  if not want and not got then return false end
  if want and got and (want == true or num(got) == num(want)) then return false end
  local set = string.sub(key, #P + 1)
  if not want then
    return report_violation(kind .. '_extra', member, 'it stands in ' .. set, function() call('ZREM', key, member) end)
  end
  local right = entry or want
  local repair = function() call('ZADD', key, right, member) end
  if got then
    return report_violation(kind .. '_score', member, 'its place in ' .. set .. ' is ' .. got .. ', not ' .. right,
      repair)
  end
  return report_violation(kind .. '_missing', member, 'it does not stand in ' .. set, repair)
end
