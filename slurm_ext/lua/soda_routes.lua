-- Pools: a job submitted to a partition under pools gets the list of partitions that its pool owns or may borrow. The
-- rules are those of policies/pools/layout/routing.py; tests/hints/test_routing.py compares both. A local file of a few lines is
-- read at every submission, because Lua cannot see whether a file has changed. Loaded by soda.lua, which lies beside it.
--
-- slurmctld holds its locks meanwhile, and checks lengths only afterwards: no pattern sees a longer text than Slurm takes, and
-- none may take more than linear time (tests/hints/test_lua_work.py).

local M = {}

local ROUTES_HEADER = "soda-pools 1"
local ROUTES_MAX_BYTES = 32 * 1024 -- slurm_ext/pools/routes_file.py writes no longer file
local REQUEST_MAX_BYTES, REQUEST_MAX_PIECES = 1024, 16 -- Slurm refuses a longer request
local GPU_PARTS = { gpu = true, gpumem = true, sharedgpu = true, shard = true, mps = true } -- gres on the devices of GPUs
local LARGE_FROM_GPUS = 4
local NO_VAL16, NO_VAL, INFINITE16, INFINITE = 65534, 4294967294, 65535, 4294967295
local TAKES_WHOLE_NODES = { [0] = true, [4] = true } -- --exclusive and --exclusive=topo; user and mcs do not
local RULES_LINE = "^rules gpu_lending=([a-z]+) kill_wait_s=([0-9]+) job_requeue=([01])$"
local PART_LINE = "^part name=([^ ]+) base=([^ ]+) kind=([a-z]+) borrowing=([01]) nodes=([0-9]+) cores=([0-9]+)"
    .. " cpus=([0-9]+) gpus=([0-9]+) type=([^ ]*)$"

-- The table of a routes file, or nil and what is wrong with it.
function M.parse_routes(text)
    local header, rest = text:match("^([^\n]*)\n(.*)$")
    if header ~= ROUTES_HEADER then
        return nil, "it does not begin with " .. ROUTES_HEADER
    end
    if not rest:find("\nend\n$") then
        return nil, "it has no end"
    end
    local routes = { parts_of = {}, base_of = {} }
    for line in rest:gmatch("([^\n]+)\n") do
        local name, base, kind, borrowing, nodes, cores, cpus, gpus, gpu_type = line:match(PART_LINE)
        if name then
            local parts = routes.parts_of[base] or {}
            parts[#parts + 1] = {
                name = name, kind = kind, borrowing = borrowing == "1", nodes = tonumber(nodes), cores = tonumber(cores),
                cpus = tonumber(cpus), gpus = tonumber(gpus), type = gpu_type,
            }
            routes.parts_of[base], routes.base_of[name], routes.base_of[base] = parts, base, base
        elseif line ~= "end" then
            local lending, kill_wait_s, requeue = line:match(RULES_LINE)
            if not lending then
                return nil, "a line cannot be read"
            end
            routes.gpu_lending, routes.kill_wait_s, routes.job_requeue = lending, tonumber(kill_wait_s), requeue == "1"
        end
    end
    if not routes.gpu_lending then
        return nil, "it has no rules"
    end
    return routes
end

local seen_text, seen_routes

local function routes_in(path)
    local file = path and io.open(path, "r")
    if not file then
        return nil
    end
    local text = file:read(ROUTES_MAX_BYTES) or ""
    file:close()
    if text ~= seen_text then
        local routes, problem = M.parse_routes(text)
        seen_text, seen_routes = text, routes
        if problem then
            slurm.log_error("%s", "slurm-soda: no job is routed: " .. path .. ": " .. problem)
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

-- Number and type of the GPUs in what follows "gpu" in a request: nothing, :2, =2, :a100, /a100 or :a100:2; nil for others.
local function gpus_after(rest)
    if rest == "" then
        return 1, ""
    end
    local mark, said = rest:match("^([:=/])(.*)$")
    local name, count = (said or "!"):match("^([0-9a-zA-Z_.-]*)[:=]([0-9]*)$")
    name = name or (said or "!"):match("^[0-9a-zA-Z_.-]*$")
    if not name then
        return nil
    end
    count = count or (mark ~= "/" and name:match("^[0-9]+$"))
    return tonumber(count or "") or 1, mark ~= "=" and name:find("[a-zA-Z]") and name or ""
end

-- GPUs and their type in a request such as gres/gpu:a100:2,gres/nvme:1; whether it asks for several types, a part of a GPU or
-- too much to read; and whether it asks for other gres.
local function gpus_in(request)
    local total, kind, odd, other, pieces = 0, "", #(request or "") > REQUEST_MAX_BYTES, false, 0
    for piece in (odd and "" or request or ""):gmatch("[^,]+") do
        pieces = pieces + 1
        if pieces > REQUEST_MAX_PIECES then
            return 0, "", true, true
        end
        local count, type_name = gpus_after(piece:match("^gres[/:]gpu(.*)$") or piece:match("^gpu(.*)$") or "!")
        if count then
            odd = odd or (total > 0 and type_name ~= kind)
            total, kind = total + count, type_name
        elseif piece:find("gres", 1, true) then
            odd = odd or GPU_PARTS[piece:match("^gres[/:]([a-z]*)") or "gpu"] or false
            other = true
        end
    end
    return total, kind, odd, other
end

-- The least that a job asks for; nil where it asks in a way that says too little.
function M.ask(job_desc)
    local nodes = given(job_desc.min_nodes) or 1
    local tasks = given(job_desc.num_tasks) or 1
    local per_job, job_type, odd_job, other_job = gpus_in(job_desc.tres_per_job)
    local per_node, node_type, odd_node, other_node = gpus_in(job_desc.tres_per_node or job_desc.gres)
    local per_socket, socket_type, odd_socket, other_socket = gpus_in(job_desc.tres_per_socket)
    local per_task, task_type, odd_task, other_task = gpus_in(job_desc.tres_per_task)
    local gpus = math.max(per_job, per_node * nodes, per_socket * nodes, per_task * tasks)
    local other = other_job or other_node or other_socket or other_task
    if odd_job or odd_node or odd_socket or odd_task or (gpus > 0 and other) then
        return nil
    end
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
        whole_nodes = TAKES_WHOLE_NODES[tonumber(job_desc.shared)] or false,
        other_gres = other,
    }
end

local function fits(part, ask)
    local asked = ask.whole_nodes and part.cpus or ask.cores_per_node
    return ask.nodes <= part.nodes and asked <= part.cores and ask.cores <= part.cores * part.nodes
        and (ask.gpus == 0 or ask.gpu_type == "" or ask.gpu_type == part.type)
        and ask.gpus_per_node <= part.gpus and ask.gpus <= part.gpus * part.nodes
end

-- Partitions for a job that names base, as one text, or nil: it stays there. And how many that are open to such jobs there
-- are, and how many of these could ever hold it.
function M.route(routes, base, ask, may_borrow)
    local kind = ask.gpus == 0 and "cpu" or ask.gpus >= LARGE_FROM_GPUS and "large" or "small"
    local own, lent, open = {}, {}, 0
    for _, part in ipairs(routes.parts_of[base] or {}) do
        if part.kind == kind and (kind ~= "cpu" and (may_borrow or not part.borrowing)
            or kind == "cpu" and (part.gpus == 0 or part.borrowing == may_borrow)) then
            open = open + 1
            if fits(part, ask) then
                local list = part.borrowing and lent or own
                list[#list + 1] = part.name
            end
        end
    end
    if #own == 0 and kind ~= "cpu" then
        return nil, open, 0
    end
    for _, name in ipairs(lent) do
        own[#own + 1] = name
    end
    return #own > 0 and table.concat(own, ",") or nil, open, #own
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

local function said(text)
    return (text or "") ~= ""
end

-- Where a job goes that names base or one of its pools: by what it needs, whatever it names. Base itself if nobody can say here
-- which pools will do: they have only some of the nodes that a GPU job may name, and cores that Slurm adds are not known yet.
-- CPU jobs have all nodes of a kind, so those that say on which nodes they run are left to base only where kinds differ.
local function place_of(routes, base, job, may_borrow)
    local ask = M.ask(job)
    if not ask or said(job.reservation) or said(job.clusters) or given(job.het_job_offset) then
        return base
    end
    local names_nodes = said(job.req_nodes)
    local chooses = names_nodes or said(job.exc_nodes) or said(job.features) or ask.other_gres
    if ask.gpus > 0 and (chooses or said(job.cpus_per_tres)) then
        return base
    end
    local list, open, fitting = M.route(routes, base, ask, may_borrow(ask.gpus))
    if chooses and (fitting < open or open > 1 and (names_nodes or ask.nodes > 1)) then
        return base
    end
    return list or base
end

-- The base that all partitions of a list are or belong to, or nil; and the list with each pool replaced by its base.
local function bases_in(routes, list)
    if #list > REQUEST_MAX_BYTES then
        return nil, list
    end
    local bases, seen, common, pools = {}, {}, nil, false
    for name in list:gmatch("[^,]+") do
        local base = routes.base_of[name] or name
        pools = pools or base ~= name
        common = (common == nil or common == base) and routes.base_of[name] or false
        if not seen[base] then
            seen[base], bases[#bases + 1] = true, base
        end
    end
    return common or nil, pools and table.concat(bases, ",") or list
end

-- Sends a new job to the partitions of its pool, by the pools in the file at this path. Without the file, or with false
-- for its path, every job stays where it is.
function M.arrange(path, job_desc, part_list, tag)
    local routes = routes_in(path)
    if not routes then
        return
    end
    local named = said(job_desc.partition) and job_desc.partition or default_partition(part_list)
    if not named then
        return
    end
    local base, wanted = bases_in(routes, named)
    if base then
        wanted = place_of(routes, base, job_desc, function(gpus) return M.may_borrow(routes, job_desc, gpus, tag) end)
    end
    if wanted ~= named then
        job_desc.partition = wanted
    end
end

local NUMBERS = { "min_nodes", "max_nodes", "min_cpus", "pn_min_cpus", "num_tasks", "cpus_per_task", "ntasks_per_node" }
local TRES = { "tres_per_node", "tres_per_job", "tres_per_socket", "tres_per_task" }
local TEXTS = { "features", "req_nodes", "exc_nodes", "cpus_per_tres" }

local NO_GRES = { cpu = true, mem = true, node = true, billing = true, license = true, bb = true, none = true, [""] = true }

-- Whether the new text of one of a waiting job's requests names gres at all. If none does, Slurm 24.11 writes down the texts (nothing,
-- none, gres/gpu:0) and leaves the job the GPUs that it has.
local function names_gres(request)
    for piece in request:sub(1, REQUEST_MAX_BYTES):gmatch("[^,]+") do
        local name, count = piece:match("^([a-zA-Z_]*)"), piece:match("[:=]([0-9]+)[a-zA-Z]?$")
        if not NO_GRES[name] and tonumber(count or 1) > 0 then
            return true
        end
    end
    return false
end

-- What a job asks for once it is changed, as far as Slurm tells; and whether the change is one of what it asks for.
local function changed_job(job_desc, job_rec)
    local job, changed, other_tres = { reservation = job_desc.reservation or job_rec.resv_name }, false, false
    for _, field in ipairs(NUMBERS) do
        local number, before = given(job_desc[field]), given(job_rec[field])
        changed = changed or number ~= nil
        job[field] = number or before ~= 0 and before or nil
    end
    for _, field in ipairs(TRES) do
        changed = changed or job_desc[field] ~= nil
        other_tres = other_tres or names_gres(job_desc[field] or "")
    end
    for _, field in ipairs(TRES) do
        job[field] = other_tres and job_desc[field] or job_rec[field]
    end
    for _, field in ipairs(TEXTS) do
        changed = changed or job_desc[field] ~= nil
        job[field] = job_desc[field] or job_rec[field]
    end
    if not other_tres then -- Slurm has counted them, per task too, for which it does not tell the number of tasks
        local counted = ("," .. (job_rec.tres_fmt_req_str or ""):sub(1, REQUEST_MAX_BYTES)):match(",gres/gpu=([0-9]+)")
        if counted and not said(job.tres_per_job) then
            job.tres_per_job = "gres/gpu:" .. counted
        end
    elseif said(job.tres_per_task) then
        job.num_tasks = job.num_tasks or job.min_cpus -- at most as many
    end
    if (tonumber(job_rec.het_job_id) or 0) > 0 then
        job.het_job_offset = 0
    end
    return job, changed or other_tres or given(job_desc.requeue) ~= nil
end

-- Keeps a waiting job whose owner names another partition, or changes what it asks for, in the partitions of its pool. What root,
-- sodad and operators say about a job of somebody else holds. Slurm does not tell of a job that it has whether it may be requeued
-- or runs alone on its nodes: so one that is in pools stays there while its request stays, and none begins to borrow.
function M.rearrange(path, job_desc, job_rec, modify_uid, tag)
    if modify_uid ~= job_rec.user_id or (tonumber(job_rec.job_state) or 1) % 256 ~= 0 then
        return
    end
    local before = job_rec.partition or ""
    local named = said(job_desc.partition) and job_desc.partition or before
    local job, changed = changed_job(job_desc, job_rec)
    local routes = (changed or named ~= before) and routes_in(path)
    if not routes then
        return
    end
    local base, wanted = bases_in(routes, named)
    local base_before, outside = bases_in(routes, before)
    local in_pools = base_before and before ~= outside
    if base and base == base_before and (not changed or not in_pools) then
        wanted = before
    elseif base then
        local borrowed = false
        for _, part in ipairs(in_pools and routes.parts_of[base] or {}) do
            borrowed = borrowed or (part.borrowing and ("," .. before .. ","):find("," .. part.name .. ",", 1, true) ~= nil)
        end
        local batch = { requeue = borrowed and (given(job_desc.requeue) or 1) or 0, script = true }
        wanted = place_of(routes, base, job, function(gpus) return M.may_borrow(routes, batch, gpus, tag) end)
    end
    if wanted ~= named then
        job_desc.partition = wanted
        if said(job_desc.partition) and named ~= before then
            slurm.log_user("%s", "partition " .. wanted .. ": what the job asks for decides among the pools")
        end
    end
end

return M
