-- Requests for wrk: bodies from files, one after the other, at once or so many a second.
-- wrk … URL -- CONTENT_TYPE PAUSE_MS FILE…

local requests, at, pause = {}, 0, 0

function init(args)
  wrk.method = "POST"
  wrk.headers["Content-Type"] = args[1]
  pause = tonumber(args[2])
  for place = 3, #args do
    local file = assert(io.open(args[place], "rb"))
    requests[#requests + 1] = wrk.format(nil, nil, nil, file:read("*a"))
    file:close()
  end
  at = math.random(#requests)
  math.randomseed(os.time())
end

function request()
  at = at % #requests + 1
  return requests[at]
end

function delay()
  if pause == 0 then return 0 end
  return math.floor(-math.log(1 - math.random()) * pause)
end

function done(summary, latency, _)
  local errors = summary.errors
  io.write(string.format(
    '{"requests": %d, "seconds": %f, "failed": %d, "p50_ms": %f, "p99_ms": %f}\n',
    summary.requests, summary.duration / 1e6,
    errors.connect + errors.read + errors.write + errors.status + errors.timeout,
    latency:percentile(50) / 1e3, latency:percentile(99) / 1e3))
end
