-- Example of a site's /etc/slurm/job_submit.lua that includes slurm-soda. In a file that exists already, add what stands
-- down to the first function, and the two calls. Whatever has become of soda.lua, slurmctld starts and takes jobs: since
-- Slurm 26.05 it would refuse a job after any error of lua, so every use of soda is inside pcall.
local _, soda = pcall(dofile, "/opt/slurm-soda/lib/soda.lua")
if slurm and type(soda) ~= "table" then slurm.log_error("slurm-soda is off: %s", tostring(soda or "soda.lua is empty")) end
local function with_soda(job_desc, call)
    local fine, answer = pcall(call)
    if fine then return answer end
    if type(soda) == "table" then slurm.log_error("slurm-soda: %s", tostring(answer)) end
    for _, field in ipairs({ "tres_per_node", "tres_per_job", "tres_per_task", "tres_per_socket" }) do
        if (job_desc[field] or ""):find("sharedgpu", 1, true) then return "gres/sharedgpu is refused: soda.lua fails" end
    end
end

function slurm_job_submit(job_desc, part_list, submit_uid)
    local refusal = with_soda(job_desc, function() return soda.submit(job_desc, part_list, submit_uid) end)
    if refusal then slurm.log_user("%s", refusal) return slurm.ERROR end
    return slurm.SUCCESS
end

function slurm_job_modify(job_desc, job_rec, part_list, modify_uid)
    local refusal = with_soda(job_desc, function() return soda.modify(job_desc, job_rec, modify_uid, part_list) end)
    if refusal then slurm.log_user("%s", refusal) return slurm.ERROR end
    return slurm.SUCCESS
end
