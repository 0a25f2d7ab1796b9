-- Asks a Skopos hub what a job should get, when it is submitted. A plugin of Slurm: copy it beside slurm.conf, and set
-- `JobSubmitPlugins=lua` there.
--
-- A job that requests no memory gets the proposal; a job that requests some keeps it, and its user is told if the proposal is
-- far below. slurmctld waits while this runs, so the question is bounded by `timeout`, and after a failure no further one is
-- asked for `pause`; after a status 503, none about this name and user. Without an answer every job has what its user requested.

local hub = os.getenv("SKOPOS_HUB") or "http://127.0.0.1:7470"
-- File with a line `Authorization: Bearer TOKEN`, which is not in the list of processes. Empty for a hub of slurmctld's user.
-- With a token the hub is asked by https, or at an address of the loopback.
local header_file = os.getenv("SKOPOS_HEADER_FILE") or ""
local timeout = 0.3      -- seconds
local pause = 60         -- seconds
local max_asleep = 1000  -- names and users that are not asked about; at one more, all are forgotten
local max_risk = "0.05"  -- share of the jobs that may need more
local headroom = 1.10    -- of the memory beyond the proposal

local asleep_until = 0
-- The same for a name and user, and the number of these.
local class_asleep_until, asleep = {}, 0

-- Returns the word for a shell, or nil if it is not a plain name. Users choose names of jobs, so only these go on.
local function plain(text)
  if text and #text <= 128 and text:match("^[%w_][%w_.+-]*$") then
    return text
  end
  return nil
end

-- Returns true if a token on the way to this URL is not in clear text, or stays on this machine. A name may be elsewhere.
local function hides_token(url)
  local host = url:match("^http://([^/?#]*)")
  host = host and host:gsub(":%d+$", "")
  return url:match("^https://") ~= nil
    or host ~= nil and (host == "[::1]" or host:match("^127%.%d+%.%d+%.%d+$") ~= nil)
end

-- Returns the proposed megabytes for a class of a user, or nil.
local function propose(class, user)
  local key = class .. "/" .. (user or "")
  if os.time() < math.max(asleep_until, class_asleep_until[key] or 0) then
    return nil
  end
  if header_file ~= "" and not hides_token(hub) then
    asleep_until = os.time() + pause
    slurm.log_info("skopos: a token is sent by https, or to an address such as 127.0.0.1; %s is not asked", hub)
    return nil
  end
  local url = hub .. "/api/v1/estimate?resource=memory&max_risk=" .. max_risk .. "&class=" .. class
  if user then
    url = url .. "&user=" .. user
  end
  local header = header_file ~= "" and (" --header @" .. header_file) or ""
  -- A proxy would see the token.
  local command = "curl --silent --noproxy '*' --max-time " .. timeout .. header .. " --write-out '\\n%{http_code}' '" .. url .. "' 2>/dev/null"
  local pipe = io.popen(command)
  if not pipe then
    return nil
  end
  local answer = pipe:read("*a") or ""
  pipe:close()
  local status = tonumber(answer:match("(%d+)%s*$")) or 0
  if status == 503 then
    -- The hub has no record of this class in the jobs that it could read. It may have records of others.
    if asleep == max_asleep then
      class_asleep_until, asleep = {}, 0
    end
    if not class_asleep_until[key] then
      asleep = asleep + 1
    end
    class_asleep_until[key] = os.time() + pause
    slurm.log_info("skopos: no proposal for %s (status 503), the next question about it in %d s", class, pause)
    return nil
  end
  if status ~= 200 and status ~= 404 then
    asleep_until = os.time() + pause
    slurm.log_info("skopos: no proposal (status %d), the next question in %d s", status, pause)
    return nil
  end
  local bytes = tonumber(answer:match('"allocation":([%d.e+]+)'))
  if not bytes or bytes <= 0 then
    return nil
  end
  return math.ceil(bytes * headroom / 1048576)
end

function slurm_job_submit(job_desc, part_list, submit_uid)
  local class, user = plain(job_desc.name), plain(job_desc.user_name)
  -- Without the user, the question would be about the jobs of all users.
  if not class or (job_desc.user_name and not user) then
    return slurm.SUCCESS
  end
  local asked, proposal = pcall(propose, class, user)
  if not asked or not proposal then
    return slurm.SUCCESS
  end
  local requested = job_desc.pn_min_memory
  if requested == slurm.NO_VAL64 then
    job_desc.pn_min_memory = proposal
    slurm.log_user("skopos: %d MB of memory, by earlier jobs named %s", proposal, class)
  elseif requested and requested > 2 * proposal and requested < slurm.MEM_PER_CPU then
    slurm.log_user("skopos: earlier jobs named %s needed %d MB, and this one requests %d", class, proposal, requested)
  end
  return slurm.SUCCESS
end

function slurm_job_modify(job_desc, job_rec, part_list, modify_uid)
  return slurm.SUCCESS
end

return slurm.SUCCESS
