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
local LARGE_FROM_GPUS = 4
local NO_VAL16, NO_VAL, INFINITE16, INFINITE = 65534, 4294967294, 65535, 4294967295
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

-- GPUs, their type and whether anything else is asked for, in a request such as gres/gpu:a100:2,license:1.
local function gpus_in(request)
    local total, kind, odd, pieces = 0, "", #(request or "") > REQUEST_MAX_BYTES, 0
    for piece in (odd and "" or request or ""):gmatch("[^,]+") do
        pieces = pieces + 1
        if pieces > REQUEST_MAX_PIECES then
            return 0, "", true
        end
        local count, type_name = gpus_after(piece:match("^gres[/:]gpu(.*)$") or piece:match("^gpu(.*)$") or "!")
        if count then
            odd = odd or (total > 0 and type_name ~= kind)
            total, kind = total + count, type_name
        elseif piece:find("gres", 1, true) then
            odd = true
        end
    end
    return total, kind, odd
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
    for _, part in ipairs(routes.parts_of[base] or {}) do
        if part.kind == kind and fits(part, ask) then
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

-- Sends a new job to the partitions of its pool, by the pools in the file at this path. Without the file, or with false
-- for its path, every job stays where it is.
function M.arrange(path, job_desc, part_list, tag)
    local routes = routes_in(path)
    if not routes then
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

return M
