-- Consent: nobody sends a job to GPUs that others hold but sodad, which knows who agreed to share. A guest asks for the second
-- GRES over the devices of gpu and carries its record in Extra (docs/design/0013-a-guest-carries-its-record.md): both are taken
-- from root and SlurmUser only, and the owner of a guest changes nothing by which it could start elsewhere. Loaded by
-- soda.lua, which lies beside it.
--
-- slurmctld holds its locks meanwhile, and checks lengths only afterwards: no pattern sees a longer text than Slurm takes, and
-- none may take more than linear time (tests/hints/test_lua_work.py).

local M = {
    -- Of slurmctld, which runs as SlurmUser: Slurm does not tell lua who that is.
    status_path = "/proc/self/status",
}

local REQUEST_MAX_BYTES = 1024 -- Slurm refuses a longer request
local RECORD_PREFIX = "soda-guest:" -- slurm_ext/sharing/guest_record.py
local UNSET = { [65534] = true, [65535] = true, [4294967294] = true, [4294967295] = true } -- NO_VAL, INFINITE
local UNSET_FROM = 2 ^ 64 -- those of 64 bits, as lua's numbers have them; memory by CPU is 2 ^ 63 and more
-- Only the first four can make a job a guest. The others are refused with them, so that the name means one thing.
local REQUESTS = { "tres_per_node", "tres_per_job", "tres_per_task", "tres_per_socket" }
local NAMING = { "gres", "tres_bind", "tres_freq", "cpus_per_tres", "mem_per_tres" }
-- With these a guest could leave the nodes whose hosts agreed, or be spread over more of them.
local PLACE_TEXTS = { "features", "prefer", "cpus_per_tres", "mem_per_tres" }
local PLACE_NUMBERS = {
    "min_nodes", "max_nodes", "min_cpus", "max_cpus", "num_tasks", "ntasks_per_node", "ntasks_per_socket", "ntasks_per_tres",
    "cpus_per_task", "pn_min_cpus", "pn_min_memory", "sockets_per_node", "cores_per_socket", "threads_per_core",
}
-- What keeps a guest beside its hosts.
local KEPT = { "req_nodes", "extra" }
-- The words of scontrol for the fields of a request, as a record's undo= has them too.
local WORDS = {
    tres_per_node = "TresPerNode", tres_per_job = "TresPerJob", tres_per_task = "TresPerTask", tres_per_socket = "TresPerSocket",
}
local UNDO = ",undo="
-- A change by somebody else bars the rewrite for so long: sodad may have read the job before it.
local FRESH_S = 30
local CHANGED = "the job has been changed since slurm-soda read it, which tries again"

local slurm_uid

-- Uid of SlurmUser, or false where nobody can say: then root alone is believed.
local function uid_of_slurm()
    if slurm_uid == nil then
        local file = io.open(M.status_path, "r")
        local text = file and file:read(4096) or ""
        if file then
            file:close()
        end
        slurm_uid = tonumber(text:match("\nUid:[ \t]*([0-9]+)") or "") or false
        if not slurm_uid then
            slurm.log_error("%s", "slurm-soda: " .. M.status_path .. " does not tell SlurmUser: only root can send jobs to shared GPUs")
        end
    end
    return slurm_uid
end

-- Whether a change by this user is sodad's, or an admin's. A site that does not say who it is has nobody privileged.
function M.privileged(uid)
    return uid == 0 or (uid ~= nil and uid == uid_of_slurm())
end

-- Whether a text names the second GRES in any spelling. Slurm takes it within quotes and after blanks too, so the name may stand
-- anywhere; what is longer than Slurm takes is not read, and counts as naming it.
local function names(text, gres)
    return text ~= nil and (#text > REQUEST_MAX_BYTES or text:lower():find(gres, 1, true) ~= nil)
end

local function any_names(job, fields, gres)
    for _, field in ipairs(fields) do
        if names(job[field], gres) then
            return true
        end
    end
    return false
end

-- Why a request of somebody who is not privileged must be refused, or nil.
function M.refusal(job_desc, shared_gres)
    local gres = shared_gres:lower()
    if any_names(job_desc, REQUESTS, gres) or any_names(job_desc, NAMING, gres) then
        return "gres/" .. gres .. ": only slurm-soda sends jobs to GPUs that others hold; ask for gpu, with --soda-share=yes"
    end
    if (job_desc.extra or ""):sub(1, #RECORD_PREFIX) == RECORD_PREFIX then
        return "extra: " .. RECORD_PREFIX .. " begins what slurm-soda writes there; use another text"
    end
end

local function given(value)
    local number = tonumber(value)
    return number ~= nil and number < UNSET_FROM and not UNSET[number]
end

-- What stands after the name of a GRES, such as :2, =2, :a100 or :a100:2, is at least one.
local function is_count(rest)
    return rest == "" or rest:find("^[:=][1-9][0-9]*$") or rest:find("^:[a-zA-Z][0-9a-zA-Z_.-]*$")
        or rest:find("^:[0-9a-zA-Z_.-]+[:=][1-9][0-9]*$")
end

-- Whether a guest asks for plain GRES once it is changed. A request that names none, or none of it, or that Slurm reads in its
-- own way, does not do: Slurm 24.11 writes such a text down and leaves the job the GPUs that it has.
local function leaves(job_desc, job_rec, gres)
    local plain = false
    for _, field in ipairs(REQUESTS) do
        local text = job_desc[field]
        if names(text or job_rec[field], gres) then
            return false
        end
        for piece in (text or ""):gmatch("[^,]+") do
            local rest = piece:match("^gres[/:][a-z_]+(.*)$")
            if rest and is_count(rest) then
                plain = true
            elseif piece:find("gres", 1, true) then
                return false
            end
        end
    end
    return plain
end

local function any_given(job_desc, fields)
    for _, field in ipairs(fields) do
        if job_desc[field] ~= nil then
            return true
        end
    end
    return false
end

local function moves(job_desc, job_rec)
    for _, field in ipairs(PLACE_NUMBERS) do
        if given(job_desc[field]) then
            return true
        end
    end
    -- One that cannot be requeued would stay when its host ends.
    return any_given(job_desc, PLACE_TEXTS) or job_desc.requeue == 0
        or (job_desc.partition or job_rec.partition) ~= job_rec.partition
end

-- How many nodes a list names, such as n1, n1,n2 or n[1-3,7]; nil where that is hard to tell.
local function count_nodes(list)
    if #list > REQUEST_MAX_BYTES then
        return nil
    end
    local inside = list:match("^[0-9a-zA-Z_.-]*%[([0-9,-]+)%]$")
    if not inside and list:find("[", 1, true) then
        return nil
    end
    local count = 0
    for piece in (inside or list):gmatch("[^,]+") do
        local first, last = piece:match("^([0-9]+)-([0-9]+)$")
        count = count + (inside and first and tonumber(last) - tonumber(first) + 1 or 1)
    end
    return count
end

-- When others than sodad changed which jobs: those of two spans of time, so that nothing grows.
local recent, older, since = {}, {}, 0

-- To be told of every change by somebody who is not privileged. Slurm (24.11, 26.05) does not tell lua whether a job may be
-- requeued, on which nodes it must run, or how many tasks it has; who asked for something else a moment ago keeps it so.
function M.note_change(job_rec)
    local now = os.time()
    if math.abs(now - since) >= FRESH_S then
        recent, older, since = {}, math.abs(now - since) < 2 * FRESH_S and recent or {}, now
    end
    recent[job_rec.job_id or 0] = now
end

-- The waiting rest of an array has the array's id, and a task that Slurm takes out of it has what the rest was given.
local function changed_lately(job_rec)
    for _, id in ipairs({ job_rec.job_id or 0, job_rec.array_job_id or 0 }) do
        local at = recent[id] or older[id]
        if id ~= 0 and at ~= nil and math.abs(os.time() - at) < FRESH_S then
            return true
        end
    end
    return false
end

-- Whether a job asks for what the record of the change says that it asked for. Of fields that the change leaves alone none may
-- ask for GPUs.
local function is_as_read(job_desc, job_rec)
    local record = job_desc.extra
    local _, mark = record:find(UNDO, 1, true)
    if (job_rec.extra or "") ~= "" or not mark or #record > REQUEST_MAX_BYTES then
        return false
    end
    local undo = ";" .. record:sub(mark + 1) .. ";"
    for _, field in ipairs(REQUESTS) do
        local now = job_rec[field] or ""
        local known = undo:find(";" .. WORDS[field] .. "=", 1, true)
        if known and not undo:find(";" .. WORDS[field] .. "=" .. now .. ";", known, true) then
            return false
        elseif not known and names(now, "gpu") then
            return false
        end
    end
    return true
end

-- Binds a job that a change makes a guest to the nodes that the change names; why it must be refused, or nil. Its owner may have
-- changed it a moment ago, and one that may have more nodes than ReqNodeList names starts on others as well, on the same GPUs
-- of theirs.
function M.bind(job_desc, job_rec, shared_gres)
    if not any_names(job_desc, REQUESTS, shared_gres:lower()) then
        return nil
    end
    -- A job with this very record is that guest already, and a rewrite without one is an admin's own.
    local record = job_desc.extra or ""
    local new = record:sub(1, #RECORD_PREFIX) == RECORD_PREFIX and record ~= job_rec.extra
    if new and (not is_as_read(job_desc, job_rec) or changed_lately(job_rec)) then
        return "gres/" .. shared_gres .. ": " .. CHANGED
    end
    local nodes = count_nodes(job_desc.req_nodes or job_rec.req_nodes or "")
    local least = given(job_desc.min_nodes) and job_desc.min_nodes or job_rec.min_nodes or 1
    local most = given(job_desc.max_nodes) and job_desc.max_nodes or job_rec.max_nodes
    if not nodes or nodes == 0 or least > nodes then
        return "gres/" .. shared_gres .. ": ReqNodeList must name all of the job's nodes"
    end
    if most ~= nodes then
        job_desc.max_nodes = nodes
    end
end

-- Why a change by somebody who is not privileged must be refused, or nil. The owner of a guest can always make it a plain job, and
-- nothing else in the same change: where Slurm refuses one field of a change, it keeps others, and which they are is up to its
-- release (24.11 takes ReqNodeList and leaves the GRES where Deadline has passed). So sodad restores nodes and Extra afterwards,
-- as SlurmUser; where they stand in the change they stay as they are.
function M.modify_refusal(job_desc, job_rec, shared_gres)
    local refusal, gres = M.refusal(job_desc, shared_gres), shared_gres:lower()
    if refusal then
        return refusal
    end
    -- The text of a request may be new where Slurm has refused it: what counts is what it has counted.
    if not any_names(job_rec, REQUESTS, gres) and not (job_rec.tres_fmt_req_str or ""):find(gres, 1, true) then
        return nil
    end
    local leaving = any_given(job_desc, KEPT) or any_given(job_desc, REQUESTS)
    if moves(job_desc, job_rec) or leaving and not leaves(job_desc, job_rec, gres) then
        local by = any_names(job_rec, { "tres_per_job" }, gres) and WORDS.tres_per_job or WORDS.tres_per_node
        return "the job is sent to GPUs that others hold: its nodes, size, partition, requeue and extra stay as they are until it asks for "
            .. "GPUs of its own, by " .. by .. "=gres/gpu:N alone"
    end
    for _, field in ipairs(KEPT) do
        if job_desc[field] ~= nil then
            job_desc[field] = job_rec[field] or ""
        end
    end
end

return M
