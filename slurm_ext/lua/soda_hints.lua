-- The hints of the --soda-... flags: their rules, and the tag at the end of a job's Comment in which they travel. Loaded by
-- soda.lua, which lies beside it.
--
-- The rules and the grammar of the tag are those of slurm_ext/hints/codec.py; tests/hints proves that both agree. Values are
-- checked again here: a user can put anything into the environment that carries them. slurmctld checks lengths only after
-- job_submit.lua, and holds its locks meanwhile: so whatever is longer than anything allowed is cut or left alone before any
-- pattern sees it, and no pattern may take more than linear time (tests/hints/test_lua_work.py).

local M = {}

-- Written by `make flags` from slurm_ext/hints/flags.py, down to the end mark: do not edit.
local CATEGORIES = { cv = true, nlp = true, speech = true, other = true }
local SIGNALS = { HUP = true, INT = true, QUIT = true, ABRT = true, ALRM = true, TERM = true, USR1 = true, USR2 = true, XCPU = true }
local MODEL_MAX_BYTES, GPU_MEMORY_MAX_MIB, GRACE_MAX_S = 64, 9999999, 3600
local SERVICE_MAX_BYTES = 40
-- In the order of the tag.
M.flags = {
    { key = "category", kind = "choice", allowed = "cv, nlp, speech or other" },
    { key = "model", kind = "name", allowed = "1 to 64 letters, digits and . _ + - /, beginning with a letter or digit" },
    { key = "batch_size", kind = "count", max_digits = 7, allowed = "a whole number from 1 to 9999999" },
    { key = "iterations", kind = "count", max_digits = 12, allowed = "a whole number from 1 to 999999999999" },
    { key = "pipelined", kind = "switch", allowed = "yes" },
    { key = "large_weights", kind = "switch", allowed = "yes" },
    { key = "heavy_preprocessing", kind = "switch", allowed = "yes" },
    { key = "share", kind = "yesno", allowed = "yes or no" },
    { key = "max_slowdown", kind = "factor", allowed = "a factor from 1 to 99.999 with at most three decimals, such as 1.2" },
    { key = "gpu_memory", kind = "size", allowed = "a size from 1M to 9999999M with M, G or T, such as 800M or 12G" },
    { key = "accumulates", kind = "switch", allowed = "yes" },
    { key = "checkpoint", kind = "checkpoint", allowed = "SIGNAL or SIGNAL@GRACE with SIGNAL one of HUP, INT, QUIT, ABRT, ALRM, TERM, USR1, USR2 or XCPU and GRACE from 1 to 3600 seconds, such as USR1@90 or USR1@2m" },
    { key = "service", kind = "service", allowed = "1 to 40 small letters, digits and hyphens, beginning with a letter or digit" },
}
-- End of what `make flags` writes.

local TAG_PREFIX = "soda:1:"
local COMMENT_MAX_BYTES = 1024 -- slurmctld refuses a job with a longer comment
local SHOWN_BYTES = 40
local ENTRY_MAX_BYTES = 128 -- more than the longest variable with the longest value that is allowed
local ENTRIES_MAX = 256 -- Slurm's other plugins put variables there too
local ENVIRONMENT_MAX_BYTES = 64 * 1024 -- Linux takes 128 KiB of one variable, and a quarter of the stack of all together
local YES = { yes = true }
local YES_NO = { yes = true, no = true }
local MIB_PER_UNIT = { [""] = 1, m = 1, g = 1024, t = 1024 * 1024 }
local SECONDS_PER_UNIT = { [""] = 1, s = 1, m = 60 }

-- Rules: text -> canonical text, or nil if it is not allowed. Bracketed ranges do not depend on the locale, %a would.

local function one_of(choices)
    return function(text)
        local lowered = text:lower()
        return choices[lowered] and lowered or nil
    end
end

local function count(max_digits)
    return function(text)
        return #text <= max_digits and text:match("^[1-9][0-9]*$") or nil
    end
end

local function name(text)
    return #text <= MODEL_MAX_BYTES and text:match("^[0-9A-Za-z][0-9A-Za-z._+/%-]*$") or nil
end

local function service(text)
    return #text <= SERVICE_MAX_BYTES and text:match("^[0-9a-z][0-9a-z-]*$") or nil
end

local function factor(text)
    local whole, fraction = text:match("^([1-9][0-9]?)%.([0-9][0-9]?[0-9]?)$")
    if not whole then
        return text:match("^[1-9][0-9]?$")
    end
    fraction = fraction:gsub("0+$", "")
    return fraction == "" and whole or whole .. "." .. fraction
end

local function scaled(digits, unit, units, largest)
    if not digits or #digits > #tostring(largest) or not units[unit] then
        return nil
    end
    local value = tonumber(digits) * units[unit]
    return value <= largest and value or nil
end

local function size(text)
    local digits, unit = text:match("^([1-9][0-9]*)([a-zA-Z]?)$")
    local mib = scaled(digits, digits and unit:lower(), MIB_PER_UNIT, GPU_MEMORY_MAX_MIB)
    return mib and string.format("%dM", mib)
end

local function checkpoint(text)
    local signal, at_grace = text:match("^([^@]*)(.*)$")
    signal = signal:upper():gsub("^SIG", "")
    if not SIGNALS[signal] then
        return nil
    end
    if at_grace == "" then
        return signal
    end
    local digits, unit = at_grace:match("^@([1-9][0-9]*)([a-z]?)$")
    local grace_s = scaled(digits, unit, SECONDS_PER_UNIT, GRACE_MAX_S)
    return grace_s and string.format("%s@%d", signal, grace_s)
end

local RULES = {
    choice = one_of(CATEGORIES), name = name, switch = one_of(YES), yesno = one_of(YES_NO), factor = factor, size = size,
    checkpoint = checkpoint, service = service,
}
for _, flag in ipairs(M.flags) do
    flag.rule = RULES[flag.kind] or count(flag.max_digits)
    flag.option = "--soda-" .. flag.key:gsub("_", "-")
    flag.env = "SODA_" .. flag.key:upper()
end

local function shown(value)
    local safe = value:sub(1, SHOWN_BYTES):gsub("[^ -~]", "?")
    return '"' .. safe .. '"' .. (#value > SHOWN_BYTES and "..." or "")
end

-- The one line that says why a value is not taken.
function M.refusal(flag, text)
    return flag.option .. ": " .. shown(text) .. " is not allowed; use " .. flag.allowed
end

-- The user's own text: the comment without words that begin like a tag, each with one space beside it.
function M.strip(comment)
    if not comment:find("soda:", 1, true) then
        return comment
    end
    return ((" " .. comment):gsub(" soda:[0-9]+:[^ ]*", ""):sub(2))
end

-- The tag of a comment as it stands, or "".
function M.tag_of(comment)
    if not comment or #comment > COMMENT_MAX_BYTES then
        return ""
    end
    local last = comment:match("^.* (.*)$") or comment
    return last:match("^soda:[0-9]+:.*$") or ""
end

local function join(text, tag)
    if text == "" or tag == "" then
        return text .. tag
    end
    return text .. " " .. tag
end

-- Tag for a list of NAME=VALUE texts; refused(line) is called for each value that is not allowed. What is cut off a value is
-- neither missed nor shown: with what is left it is still too long.
function M.tag_from_env(env, refused)
    local values = {}
    for _, entry in pairs(env) do
        local variable, value = entry:sub(1, ENTRY_MAX_BYTES):match("^(SODA_[A-Z_]+)=(.*)$")
        if variable then
            values[variable] = value
        end
    end
    local pieces = {}
    for _, flag in ipairs(M.flags) do
        local text = values[flag.env]
        local value = text and flag.rule(text)
        if value then
            pieces[#pieces + 1] = flag.key .. "=" .. value
        elseif text then
            refused(M.refusal(flag, text))
        end
    end
    return #pieces > 0 and TAG_PREFIX .. table.concat(pieces, ",") or ""
end

local function tell_user(line)
    slurm.log_user("%s", line)
end

-- The list of a job's SPANK variables, and why the job must not be taken, or nil. Slurm puts them into the environment of Prolog
-- and Epilog without a limit: with more than Linux takes, these do not start, and slurmd drains its node. The length of the list
-- is asked first, because Slurm makes a table of it.
function M.variables(job_desc)
    local count = tonumber(job_desc.spank_job_env_size) or 0
    if count > ENTRIES_MAX then
        return nil, "job refused: it has more than " .. ENTRIES_MAX .. " SPANK variables, with which no prolog could start"
    end
    local env, bytes = job_desc.spank_job_env, 0
    for _, entry in pairs(type(env) == "table" and env or {}) do
        bytes = bytes + #entry
    end
    if bytes > ENVIRONMENT_MAX_BYTES then
        return nil, "job refused: its SPANK variables have more than 64 KiB, with which no prolog could start"
    end
    return env
end

-- Writes the tag of a new job with these variables into its Comment; the tag. A comment that Slurm will refuse is left as it is.
function M.annotate(job_desc, env)
    local comment = job_desc.comment or ""
    if #comment > COMMENT_MAX_BYTES then
        return ""
    end
    local text = M.strip(comment)
    local tag = env and M.tag_from_env(env, function(line) tell_user(line .. "; it is ignored") end) or ""
    local wanted = join(text, tag)
    if #wanted > COMMENT_MAX_BYTES then
        tell_user("--soda flags are ignored: with them the comment would be longer than 1024 bytes; shorten --comment")
        wanted, tag = text, ""
    end
    if wanted ~= comment then
        job_desc.comment = wanted
    end
    return tag
end

-- Keeps the tag of a job whose owner writes a new comment.
function M.modify(job_desc, job_rec)
    local comment = job_desc.comment
    if not comment or #comment > COMMENT_MAX_BYTES then
        return
    end
    local before = job_rec.comment or ""
    local wanted = join(M.strip(comment), M.tag_of(before))
    if #wanted > COMMENT_MAX_BYTES then
        tell_user("comment left as it was: with slurm-soda's tag it would be longer than 1024 bytes; shorten it")
        wanted = before
    end
    if wanted ~= comment then
        job_desc.comment = wanted
    end
end

return M
