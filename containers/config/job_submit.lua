-- A site's own job_submit.lua. What a site adds for slurm-soda is the line with soda.lua and the two calls.
local loaded, soda = pcall(dofile, "/opt/slurm-soda/lib/soda.lua")

function slurm_job_submit(job_desc, part_list, submit_uid)
    if loaded then
        return soda.job_submit(job_desc, part_list, submit_uid)
    end
    return slurm.SUCCESS
end

function slurm_job_modify(job_desc, job_rec, part_list, modify_uid)
    if loaded then
        return soda.job_modify(job_desc, job_rec, part_list, modify_uid)
    end
    return slurm.SUCCESS
end

return slurm.SUCCESS
