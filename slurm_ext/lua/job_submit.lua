-- Example of a site's /etc/slurm/job_submit.lua that includes slurm-soda. In a file that exists already, add the line
-- with dofile and the two calls. pcall: should soda.lua ever be missing, slurmctld still starts and takes jobs.
local soda_found, soda = pcall(dofile, "/opt/slurm-soda/lib/soda.lua")
if slurm and not soda_found then slurm.log_error("slurm-soda is off: %s", tostring(soda)) end

function slurm_job_submit(job_desc, part_list, submit_uid)
    if soda_found then soda.submit(job_desc, part_list) end
    return slurm.SUCCESS
end

function slurm_job_modify(job_desc, job_rec, part_list, modify_uid)
    if soda_found then soda.modify(job_desc, job_rec, modify_uid) end
    return slurm.SUCCESS
end
