-- slurm-soda's part of a site's job_submit.lua. It refuses requests for GPUs that others hold, moves the hints of the --soda-...
-- flags into a tag at the end of the job's Comment, routes the job where pools are in force, and wakes the daemon. It never waits
-- for the daemon, and an error inside it is only logged. Works with Lua 5.1 to 5.4, whichever Slurm was built with. See
-- job_submit.lua beside this file.

local M = {
    -- Written to at every submission; sodad watches it. Set to false to switch that off.
    wake_path = "/run/slurm-soda/wake",
    -- Pools in force, written by `sodactl pools apply`; without the file no job is routed. false: never look.
    routes_path = "/var/lib/slurm-soda/pools.routes",
    -- The GRES that names the devices of gpu a second time (sharing.gres of sodad.toml).
    shared_gres = "sharedgpu",
}

-- The rest lies beside this file, wherever the site has put it. Should it be missing, or empty after a full disk, this file
-- does not load, and the pcall of the site's job_submit.lua has slurmctld go on without slurm-soda.
local here = debug.getinfo(1, "S").source:match("^@(.*/)") or ""
local function part(name)
    local found = dofile(here .. name)
    return type(found) == "table" and found or error(here .. name .. " is no part of slurm-soda; install it again", 0)
end
local hints, routes, guests = part("soda_hints.lua"), part("soda_routes.lua"), part("soda_guests.lua")

-- "r+" first: it neither creates nor truncates, and does not block even on a pipe that nobody reads.
local function wake()
    local file = M.wake_path and (io.open(M.wake_path, "r+") or io.open(M.wake_path, "w"))
    if file then
        file:write("\n")
        file:close()
    end
end

local function guarded(call)
    local fine, problem = pcall(call)
    if not fine then
        pcall(function()
            slurm.log_error("%s", "slurm-soda: soda.lua failed, the job is not affected: " .. tostring(problem))
        end)
    end
end

local function refuse_plain_name(job_desc)
    for _, field in ipairs({ "tres_per_node", "tres_per_job", "tres_per_task", "tres_per_socket" }) do
        if (job_desc[field] or ""):find(M.shared_gres, 1, true) then
            return "gres/" .. M.shared_gres .. " is refused: soda_guests.lua fails"
        end
    end
end

-- Why a request or a change must be refused. Should the check itself fail, so is what plainly asks for GPUs of others.
local function refusal_of(job_desc, uid, check)
    local checked, refusal = false, nil
    guarded(function()
        if not guests.privileged(uid) then
            refusal = check()
        end
        checked = true
    end)
    if not checked and uid ~= 0 then
        guarded(function() refusal = refuse_plain_name(job_desc) end)
    end
    return refusal
end

-- To be called in slurm_job_submit. Changes nothing but job_desc.comment and, where pools are in force, job_desc.partition.
-- A site that calls it without the list of partitions has only those jobs routed that name their partition. Returns why the job
-- must be refused, or nil: it asks for GPUs that others hold, or would drain its node.
function M.submit(job_desc, part_list, submit_uid)
    local tag = ""
    local refusal = refusal_of(job_desc, submit_uid, function() return guests.refusal(job_desc, M.shared_gres) end)
    if refusal then
        return refusal
    end
    guarded(function()
        local env
        env, refusal = hints.variables(job_desc)
        tag = refusal and "" or hints.annotate(job_desc, env)
    end)
    if refusal then
        return refusal
    end
    guarded(function() routes.arrange(M.routes_path, job_desc, part_list, tag) end)
    guarded(wake)
end

-- To be called in slurm_job_modify. Keeps the job's tag when its user writes a new comment, and the job in its pool when its
-- owner changes it. What root writes stays as it is, tag and partition too. The daemon never changes comments: for its
-- updates, and root's, this is a look at a few fields. With the list of partitions no job is sent to one that Slurm does not have. Returns why
-- the change must be refused, or nil.
function M.modify(job_desc, job_rec, modify_uid, part_list)
    local refusal = refusal_of(job_desc, modify_uid, function()
        return guests.modify_refusal(job_desc, job_rec, M.shared_gres)
    end)
    guarded(function() refusal = refusal or guests.bind(job_desc, job_rec, M.shared_gres) end)
    if refusal then
        return refusal
    end
    if modify_uid ~= 0 then
        guarded(function()
            if not guests.privileged(modify_uid) then
                guests.note_change(job_rec)
            end
            hints.modify(job_desc, job_rec)
            routes.rearrange(M.routes_path, job_desc, job_rec, modify_uid, hints.tag_of(job_rec.comment), part_list)
        end)
    end
end

return M
