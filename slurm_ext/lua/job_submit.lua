-- Example of a site's /etc/slurm/job_submit.lua that includes slurm-soda. In a file that exists already, add what stands
-- down to the first function, and the two calls. Whatever has become of soda.lua, slurmctld starts and takes jobs: since
-- Slurm 26.05 it would refuse a job after any error of lua, so every use of soda is inside pcall.
local _, soda = pcall(dofile, "/opt/slurm-soda/lib/soda.lua")
if slurm and type(soda) ~= "table" then slurm.log_error("slurm-soda is off: %s", tostring(soda or "soda.lua is empty")) end
local function with_soda(call)
    local fine, problem = pcall(call)
    if not fine and type(soda) == "table" then slurm.log_error("slurm-soda: %s", tostring(problem)) end
end

function slurm_job_submit(job_desc, part_list, submit_uid)
    local refusal
    with_soda(function() refusal = soda.submit(job_desc, part_list) end)
    if refusal then slurm.log_user("%s", refusal) return slurm.ERROR end
    return slurm.SUCCESS
end

function slurm_job_modify(job_desc, job_rec, part_list, modify_uid)
    with_soda(function() soda.modify(job_desc, job_rec, modify_uid, part_list) end)
    return slurm.SUCCESS
end
