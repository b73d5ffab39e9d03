package lua

import (
	"fmt"
	"slices"
	"strings"
)

// Record describes a kind of record that the store keeps as one string. There is at least one such record for each
// task, so its size and its cost matter. The string has the values of Fields, in their order, and then one map of all
// other fields, or false.
type Record struct {
	Kind   string // its keys begin with it, and a colon
	Fields []string
	Others []string // further fields, which few have
}

// Records are all kinds of records that are one string each. The order of Fields is part of the format of the store.
var Records = []Record{
	{Kind: "task",
		Fields: strings.Fields(`state token run order attempt lane pri window review failures handoff created max_attempts
			backoff retry_on escalate by role at updated pin gate reports reports_size`),
		Others: strings.Fields(`root parent depth up1 up2 up3 delegated client context instance instance_number labels fixes
			retries assignee pin_for pin_until not_before ready calls runs_from runs_used push request reason closed_by
			emitted emitted_bytes read_by read_ids broods`)},
	{Kind: "run",
		Fields: strings.Fields(`task state secret token tokens agent window confirmed attempt started workspace incarnation
			key class ended ended_at deadline closed said renewals active call call_by call_at same report
			report_at`),
		Others: strings.Fields(`launched exited code containment duration events_full evidence exec execs exited_at exits
			last_event nudge nudge_for nudges nudge_seen inbox_seen reminded replaced row_told signal timeout tops_seen
			usage_full`)},
	{Kind: "env",
		Fields: strings.Fields(`parent closed granted_t granted_u available_t available_u held_t held_u spent_t spent_u
			carved_t carved_u total_t total_u envelope_t envelope_u`),
		Others: strings.Fields(`warned_t warned_u tops cap_t cap_u llm_t llm_u reported_t reported_u charged_t charged_u
			unverified_t unverified_u refused`)},
}

// RecordsPart is the part of the scripts that packs and unpacks records.
func RecordsPart() string {
	var out strings.Builder
	out.WriteString(`-- Made from records.go by "make recordlua". Do not edit.
-- Records that are one string each, by the beginning of their keys and by its first four bytes. A record is a table
-- with its key at 1 and its fields by name; _store.lua explains the names that begin with "_". pack makes the string,
-- and unpack makes the record of the values that the string has. A field that is missing is false.
local packing = (function()
  -- pack makes a string of values, and unpack_values makes values of a string. A store in memory has no cmsgpack. Its
  -- strings are lists.
  local pack, unpack_values
  on_call(function()
    if pack then return end -- on a real store only
    local found, library = pcall(function() return cmsgpack end)
    if found and library then -- on a real store only
      pack, unpack_values = library.pack, library.unpack
    else -- in memory only
      pack = function(...) return cjson.encode({ ... }) end -- in memory only
      unpack_values = function(text) -- in memory only
        local values = cjson.decode(text)
        if values[1] == nil then return values end -- in memory only
        return unpack(values, 1, #values)
      end
    end
  end)

  -- set_new sets a field that was missing.
  local function set_new(r, name, value)
    rawset(r, name, value)
    if r._kind.first[name] then return end
    r._others = r._others or {}
    r._others[name] = value
  end

  -- from_map makes a record of fields by name, as strings of format 2 have them.
  local function from_map(kind, key, fields)
    local r = { key, _kind = kind, _others = false, _changed = 0, _waits = false }
    for name, value in pairs(fields) do
      if kind.first[name] then
        r[name] = value
      else
        r._others = r._others or {}
        r._others[name] = value
      end
    end
    return r
  end
`)
	for _, r := range Records {
		fmt.Fprintf(&out, "  local %s = {\n    missing = { __newindex = set_new, __index = { _found = true,\n      %s } },\n"+
			"    first = {\n      %s } }\n", r.Kind,
			wrap(all(slices.Concat(r.Fields, r.Others), "false"), ", "), wrap(all(r.Fields, "true"), ", "))
		fmt.Fprintf(&out, "  function %s.pack(r)\n    return pack(%s)\n  end\n", r.Kind,
			wrap(append(prefixed("r.", r.Fields), "r._others"), ", "))
		fmt.Fprintf(&out, "  function %s.unpack(key, %s)\n", r.Kind,
			wrap(append(prefixed("v_", r.Fields), "others"), ", "))
		fmt.Fprintf(&out, "    if others == nil then return from_map(%s, key, v_%s) end\n", r.Kind, r.Fields[0])
		pairs := make([]string, 0, len(r.Fields))
		for _, f := range r.Fields {
			pairs = append(pairs, f+" = v_"+f)
		}
		fmt.Fprintf(&out, "    return { key, _kind = %s, _others = others, _changed = 0, _waits = false,\n"+
			"      %s }\n  end\n", r.Kind, wrap(pairs, ", "))
	}
	out.WriteString("  local kinds = { ")
	for i, r := range Records {
		if i > 0 {
			out.WriteString(", ")
		}
		fmt.Fprintf(&out, "['%s:'] = %s", r.Kind, r.Kind)
		if len(r.Kind) > 3 {
			fmt.Fprintf(&out, ", %s = %s", r.Kind[:4], r.Kind)
		}
	}
	out.WriteString(` }

  -- kind_of is the kind of the record of a key, or nil if it is a hash.
  local function kind_of(key)
    local at = #P + 1
    return kinds[string.sub(key, at, at + 3)]
  end

  -- pack_fields makes the string of a record from its fields by name.
  local function pack_fields(key, fields)
    local kind = kind_of(key)
    return kind.pack(setmetatable(from_map(kind, key, fields), kind.missing))
  end

  -- unpack_record makes a record of its string, or of none.
  local function unpack_record(kind, key, text)
    if not text then
      local none = { key, _kind = kind, _others = false, _changed = 0, _waits = false, _found = false }
      return setmetatable(none, kind.missing)
    end
    local r = setmetatable(kind.unpack(key, unpack_values(text)), kind.missing)
    if r._others then
      for name, value in pairs(r._others) do r[name] = value end
    end
    return r
  end

  -- copy copies a record of any kind.
  local function copy(r)
    local c = {}
    for name, value in pairs(r) do c[name] = value end
    if r._others then
      c._others = {}
      for name, value in pairs(r._others) do c._others[name] = value end
    end
    return setmetatable(c, getmetatable(r))
  end

  -- pack_reply makes one string of a reply.
  local function pack_reply(reply) return pack(reply) end -- on a real store only
  return { kinds = kinds, kind_of = kind_of, pack_fields = pack_fields, unpack_record = unpack_record,
    copy = copy, pack_reply = pack_reply }
end)()
`)
	return out.String()
}

// all are the members of a table that have one value.
func all(names []string, value string) []string {
	out := make([]string, 0, len(names))
	for _, n := range names {
		out = append(out, n+" = "+value)
	}
	return out
}

func prefixed(prefix string, names []string) []string {
	out := make([]string, 0, len(names)+1)
	for _, n := range names {
		out = append(out, prefix+n)
	}
	return out
}

// wrap joins words, in lines of at most about a hundred characters.
func wrap(words []string, separator string) string {
	var out strings.Builder
	line := 40
	for i, w := range words {
		if i > 0 {
			out.WriteString(strings.TrimRight(separator, " "))
			if line > 90 {
				out.WriteString("\n      ")
				line = 0
			} else {
				out.WriteString(strings.Repeat(" ", strings.Count(separator, " ")))
			}
		}
		out.WriteString(w)
		line += len(w) + len(separator)
	}
	return out.String()
}
