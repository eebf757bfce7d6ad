-- slurm-soda's part of a site's job_submit.lua. It moves the hints of the --soda-... flags into a tag at the end of the
-- job's Comment, routes the job where arrays are in force, and wakes the daemon. It never rejects a job, never waits for the daemon, and an error inside it is only
-- logged. Works with Lua 5.1 to 5.4, whichever Slurm was built with. See job_submit.lua beside this file.
--
-- The rules and the grammar of the tag are those of slurm_ext/hints.py and slurm_ext/codec.py; tests/hints proves that
-- both agree. Values are checked again here: a user can put anything into the environment that carries them.

local M = {
    -- Written to at every submission; sodad watches it. Set to false to switch that off.
    wake_path = "/run/slurm-soda/wake",
    -- Arrays in force, written by `sodactl arrays apply`; without the file no job is routed. false: never look.
    routes_path = "/var/lib/slurm-soda/arrays.routes",
}

local TAG_PREFIX = "soda:1:"
local COMMENT_MAX_BYTES = 1024 -- slurmctld refuses a job with a longer comment
local SHOWN_BYTES = 40
local CATEGORIES = { cv = true, nlp = true, speech = true, other = true }
local YES = { yes = true }
local YES_NO = { yes = true, no = true }
local SIGNALS = {
    HUP = true, INT = true, QUIT = true, ABRT = true, ALRM = true, TERM = true, USR1 = true, USR2 = true, XCPU = true,
}
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
    return #text <= 64 and text:match("^[0-9A-Za-z][0-9A-Za-z._+/%-]*$") or nil
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
    local mib = scaled(digits, digits and unit:lower(), MIB_PER_UNIT, 9999999)
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
    local grace_s = scaled(digits, unit, SECONDS_PER_UNIT, 3600)
    return grace_s and string.format("%s@%d", signal, grace_s)
end

-- In the order of the tag.
M.flags = {
    { key = "category", rule = one_of(CATEGORIES), allowed = "cv, nlp, speech or other" },
    { key = "model", rule = name,
      allowed = "1 to 64 letters, digits and . _ + - /, beginning with a letter or digit" },
    { key = "batch_size", rule = count(7), allowed = "a whole number from 1 to 9999999" },
    { key = "iterations", rule = count(12), allowed = "a whole number from 1 to 999999999999" },
    { key = "pipelined", rule = one_of(YES), allowed = "yes" },
    { key = "large_weights", rule = one_of(YES), allowed = "yes" },
    { key = "heavy_preprocessing", rule = one_of(YES), allowed = "yes" },
    { key = "share", rule = one_of(YES_NO), allowed = "yes or no" },
    { key = "max_slowdown", rule = factor,
      allowed = "a factor from 1 to 99.999 with at most three decimals, such as 1.2" },
    { key = "gpu_memory", rule = size,
      allowed = "a size from 1M to 9999999M with M, G or T, such as 800M or 12G" },
    { key = "checkpoint", rule = checkpoint,
      allowed = "SIGNAL or SIGNAL@GRACE with SIGNAL one of HUP, INT, QUIT, ABRT, ALRM, TERM, USR1, USR2 or XCPU and "
          .. "GRACE from 1 to 3600 seconds, such as USR1@90 or USR1@2m" },
}
for _, flag in ipairs(M.flags) do
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

local function is_tag(word)
    return word:find("^soda:[0-9]+:") ~= nil
end

-- The user's own text: the comment without words that begin like a tag, each with one space beside it.
function M.strip(comment)
    if not comment:find("soda:", 1, true) then
        return comment
    end
    local kept = {}
    for word in (comment .. " "):gmatch("([^ ]*) ") do
        if not is_tag(word) then
            kept[#kept + 1] = word
        end
    end
    return table.concat(kept, " ")
end

-- The tag of a comment as it stands, or "".
function M.tag_of(comment)
    local last = comment:match("[^ ]*$")
    return is_tag(last) and last or ""
end

local function join(text, tag)
    if text == "" or tag == "" then
        return text .. tag
    end
    return text .. " " .. tag
end

-- Tag for a list of NAME=VALUE texts; refused(line) is called for each value that is not allowed.
function M.tag_from_env(env, refused)
    local values = {}
    for _, entry in pairs(env) do
        local variable, value = entry:match("^(SODA_[A-Z_]+)=(.*)$")
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

-- Arrays: a job submitted to a partition under arrays gets the list of partitions that its array owns or may borrow. The rules
-- are those of policies/arrays/routing.py; tests/hints/test_routing.py compares both. A local file of a few lines is read at
-- every submission, because Lua cannot see whether a file has changed.

local ROUTES_HEADER = "soda-arrays 1"
local ROUTES_MAX_BYTES = 1024 * 1024
local LARGE_FROM_GPUS = 4
local NO_VAL16, NO_VAL, INFINITE16, INFINITE = 65534, 4294967294, 65535, 4294967295
local PART_NUMBERS = { "nodes", "cores", "cpus", "gpus" }

local function words_of(line)
    local found = {}
    for key, value in line:gmatch("([a-z_]+)=([^ ]*)") do
        found[key] = value
    end
    return found
end

-- The table of a routes file, or nil and what is wrong with it.
function M.parse_routes(text)
    local header, rest = text:match("^([^\n]*)\n(.*)$")
    if header ~= ROUTES_HEADER then
        return nil, "it does not begin with " .. ROUTES_HEADER
    end
    if not rest:find("\nend\n$") then
        return nil, "it has no end"
    end
    local routes = { parts = {}, base_of = {} }
    for line in rest:gmatch("([^\n]+)\n") do
        local kind, words = line:match("^[a-z]+"), words_of(line)
        if kind == "rules" then
            routes.gpu_lending = words.gpu_lending
            routes.kill_wait_s = tonumber(words.kill_wait_s)
            routes.job_requeue = words.job_requeue == "1"
        elseif kind == "part" and words.name and words.base then
            for _, key in ipairs(PART_NUMBERS) do
                words[key] = tonumber(words[key])
                if not words[key] then
                    return nil, "a partition has no " .. key
                end
            end
            words.borrowing = words.borrowing == "1"
            routes.parts[#routes.parts + 1] = words
            routes.base_of[words.name], routes.base_of[words.base] = words.base, words.base
        elseif kind ~= "end" then
            return nil, "a line cannot be read"
        end
    end
    if not routes.gpu_lending or not routes.kill_wait_s then
        return nil, "it has no rules"
    end
    return routes
end

local seen_text, seen_routes

local function current_routes()
    local file = M.routes_path and io.open(M.routes_path, "r")
    if not file then
        return nil
    end
    local text = file:read(ROUTES_MAX_BYTES) or ""
    file:close()
    if text ~= seen_text then
        local routes, problem = M.parse_routes(text)
        seen_text, seen_routes = text, routes
        if problem then
            slurm.log_error("%s", "slurm-soda: no job is routed: " .. M.routes_path .. ": " .. problem)
        end
    end
    return seen_routes
end

-- A count that the user gave, or nil.
local function given(value)
    local number = tonumber(value)
    if number and number ~= NO_VAL16 and number ~= NO_VAL and number ~= INFINITE16 and number ~= INFINITE then
        return number
    end
    return nil
end

-- GPUs, their type and whether anything else is asked for, in a request such as gres/gpu:a100:2,license:1.
local function gpus_in(request)
    local total, kind, several, other = 0, "", false, false
    for piece in (request or ""):gmatch("[^,]+") do
        local rest = piece:match("^gres[/:]gpu(.*)$") or piece:match("^gpu(.*)$")
        if rest == "" or rest and rest:find("^[:=/][0-9a-zA-Z_.-]*[:=]?[0-9]*$") then
            local number = rest:match("[:=]([0-9]+)$")
            local type_name = rest:match("^[:/]([^:=]*[a-zA-Z][^:=]*)") or ""
            several = several or (total > 0 and type_name ~= kind)
            total, kind = total + (tonumber(number) or 1), type_name
        elseif piece:find("gres", 1, true) then
            other = true
        end
    end
    return total, kind, several or other
end

-- The least that a job asks for; nil where it asks in a way that says too little.
function M.ask(job_desc)
    local nodes = given(job_desc.min_nodes) or 1
    local tasks = given(job_desc.num_tasks) or 1
    local per_job, job_type, odd_job = gpus_in(job_desc.tres_per_job)
    local per_node, node_type, odd_node = gpus_in(job_desc.tres_per_node or job_desc.gres)
    local per_socket, socket_type, odd_socket = gpus_in(job_desc.tres_per_socket)
    local per_task, task_type, odd_task = gpus_in(job_desc.tres_per_task)
    if odd_job or odd_node or odd_socket or odd_task then
        return nil
    end
    local gpus = math.max(per_job, per_node * nodes, per_socket * nodes, per_task * tasks)
    local most_nodes = given(job_desc.max_nodes)
    local cores = math.max(given(job_desc.min_cpus) or 1, tasks * (given(job_desc.cpus_per_task) or 1))
    local per_node_cores = math.max(
        given(job_desc.pn_min_cpus) or 1,
        given(job_desc.cpus_per_task) or 1,
        (given(job_desc.ntasks_per_node) or 1) * (given(job_desc.cpus_per_task) or 1),
        most_nodes and math.ceil(cores / most_nodes) or 1
    )
    return {
        gpus = gpus,
        gpus_per_node = math.max(per_node, per_socket, per_task, most_nodes and math.ceil(gpus / most_nodes) or 0),
        gpu_type = job_type ~= "" and job_type or node_type ~= "" and node_type or socket_type ~= "" and socket_type
            or task_type,
        nodes = nodes,
        cores = cores,
        cores_per_node = per_node_cores,
        whole_nodes = tonumber(job_desc.shared) == 0,
    }
end

local function fits(part, ask)
    local asked = ask.whole_nodes and part.cpus or ask.cores_per_node
    return ask.nodes <= part.nodes and asked <= part.cores and ask.cores <= part.cores * part.nodes
        and (ask.gpus == 0 or ask.gpu_type == "" or ask.gpu_type == part.type)
        and ask.gpus_per_node <= part.gpus and ask.gpus <= part.gpus * part.nodes
end

-- Partitions for a job that names base, as one text, or nil: it stays there.
function M.route(routes, base, ask, may_borrow)
    local kind = ask.gpus == 0 and "cpu" or ask.gpus >= LARGE_FROM_GPUS and "large" or "small"
    local own, lent = {}, {}
    for _, part in ipairs(routes.parts) do
        if part.base == base and part.kind == kind and fits(part, ask) then
            local list = part.borrowing and lent or own
            if kind ~= "cpu" and (may_borrow or not part.borrowing)
                or kind == "cpu" and (part.gpus == 0 or part.borrowing == may_borrow) then
                list[#list + 1] = part.name
            end
        end
    end
    if #own == 0 and kind ~= "cpu" then
        return nil
    end
    for _, name in ipairs(lent) do
        own[#own + 1] = name
    end
    return #own > 0 and table.concat(own, ",") or nil
end

-- Whether Slurm's own preemption may end a run of this job: it can be requeued and, with GPUs, saves its state at SIGTERM
-- before Slurm kills it. What salloc and srun start has no script, so Slurm would cancel it instead.
function M.may_borrow(routes, job_desc, gpus, tag)
    local said = tonumber(job_desc.requeue)
    local requeue = said == 1 or (said ~= 0 and routes.job_requeue)
    if not requeue or not job_desc.script then
        return false
    end
    if gpus == 0 or routes.gpu_lending == "requeue" then
        return true
    end
    local signal, grace_s = tag:match("checkpoint=([A-Z0-9]+)@?([0-9]*)")
    return routes.gpu_lending == "checkpoint" and signal == "TERM" and (tonumber(grace_s) or 0) <= routes.kill_wait_s
end

local function default_partition(part_list)
    for name, part in pairs(part_list or {}) do
        if part.flag_default == 1 then
            return name
        end
    end
end

-- Fields that name nodes, or make Slurm add cores: nobody can say here which partitions will do.
local PECULIAR = { "reservation", "req_nodes", "exc_nodes", "features", "cpus_per_tres", "clusters" }

local function peculiar(job_desc)
    for _, field in ipairs(PECULIAR) do
        if (job_desc[field] or "") ~= "" then
            return true
        end
    end
    return given(job_desc.het_job_offset) ~= nil
end

local function arrange(job_desc, part_list, tag)
    local routes = current_routes()
    if not routes or #routes.parts == 0 then
        return
    end
    local named = job_desc.partition
    if not named or named == "" then
        named = default_partition(part_list)
    end
    local base = named and routes.base_of[named]
    if not base or peculiar(job_desc) then
        return
    end
    local ask = M.ask(job_desc)
    if not ask then
        return
    end
    local list = M.route(routes, base, ask, M.may_borrow(routes, job_desc, ask.gpus, tag))
    if list then
        job_desc.partition = list
    elseif base ~= named then
        job_desc.partition = base
    end
end

-- "r+" first: it neither creates nor truncates, and does not block even on a pipe that nobody reads.
local function wake()
    local file = M.wake_path and (io.open(M.wake_path, "r+") or io.open(M.wake_path, "w"))
    if file then
        file:write("\n")
        file:close()
    end
end

local function tell_user(line)
    slurm.log_user("%s", line)
end

local function annotate(job_desc)
    local comment = job_desc.comment or ""
    local env = job_desc.spank_job_env
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

local function modify(job_desc, job_rec)
    local comment = job_desc.comment
    if not comment then
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

local function guarded(what, ...)
    local fine, problem = pcall(what, ...)
    if not fine then
        pcall(function()
            slurm.log_error("%s", "slurm-soda: soda.lua failed, the job is not affected: " .. tostring(problem))
        end)
    end
end

-- To be called in slurm_job_submit. Changes nothing but job_desc.comment and, where arrays are in force, job_desc.partition.
-- A site that calls it without the list of partitions has only those jobs routed that name their partition.
function M.submit(job_desc, part_list)
    local tag = ""
    guarded(function() tag = annotate(job_desc) end)
    guarded(arrange, job_desc, part_list, tag)
    guarded(wake)
end

-- To be called in slurm_job_modify. Keeps the job's tag when its user writes a new comment. Root writes comments as they
-- are, tag and all. The daemon never changes comments: for its updates this is one look at a field.
function M.modify(job_desc, job_rec, modify_uid)
    if modify_uid ~= 0 then
        guarded(modify, job_desc, job_rec)
    end
end

return M
